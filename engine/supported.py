"""Which models can be run: those whose cache can be rolled back, as far as attention is full."""

from __future__ import annotations

from typing import Any

from engine.errors import UserError

UNBOUNDED = 1 << 30
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention")


def check_cache(hf_model: Any, name: str) -> None:
    """Rejected tokens are taken back, which a recurrent state cannot do.

    Raises:
        UserError: the model keeps such a state.
    """
    config = hf_model.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ()
    recurrent = sorted({kind for kind in kinds if kind not in _ATTENTION})
    stateful = getattr(hf_model, "_is_stateful", False)
    if stateful or recurrent or not getattr(config, "num_attention_heads", None):
        what = ", ".join(recurrent) or config.model_type
        raise UserError(
            f"{name or config.model_type}: its state ({what}) cannot be rolled back, so rejected "
            "proposals could not be taken back; choose a model with attention in every layer"
        )


def context_of(config: Any) -> int:
    """The most tokens a row may have.

    A sliding window ends it early: up to the window's size its attention is the full
    one, and beyond that the engine would have to forget what it still holds.
    """
    context: int = getattr(config, "max_position_embeddings", None) or UNBOUNDED
    kinds = getattr(config, "layer_types", None)
    for kind, field in (
        ("sliding_attention", "sliding_window"),
        ("chunked_attention", "attention_chunk_size"),
    ):
        window = getattr(config, field, None)
        if window and (kinds is None or kind in kinds):
            context = min(context, int(window))
    return context
