"""Which models can be run: an allow-list, each entry proved by `tests/test_architectures.py`.

What a method needs of a model: K/V that can be taken back, attention that a mask can
express, and positions that it takes from us.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from engine.config.errors import UserError
from engine.models.windows import Windows

UNBOUNDED = 1 << 30


class Attention(Enum):
    """How an architecture's layers attend."""

    FULL = "to everything before"
    SLIDING = "through a window in every layer, if the configuration has one"
    MIXED = "through a window in those layers that the configuration names"


ARCHITECTURES: dict[str, Attention] = {
    "cohere": Attention.FULL,
    "cohere2": Attention.MIXED,
    "gemma": Attention.FULL,
    "gemma2": Attention.MIXED,
    "gemma3": Attention.MIXED,
    "gemma3_text": Attention.MIXED,
    "glm": Attention.FULL,
    "glm4": Attention.FULL,
    "gpt2": Attention.FULL,
    "gpt_neox": Attention.FULL,
    "granite": Attention.FULL,
    "llama": Attention.FULL,
    "mistral": Attention.SLIDING,
    "olmo2": Attention.FULL,
    "olmo3": Attention.MIXED,
    "opt": Attention.FULL,
    "phi": Attention.FULL,
    "phi3": Attention.SLIDING,
    "qwen2": Attention.MIXED,
    "qwen3": Attention.MIXED,
    "smollm3": Attention.MIXED,
    "starcoder2": Attention.SLIDING,
}
"""By transformers' `model_type`. Of `gemma3`, which reads pictures too, the text alone."""

_ALIBI = ("bloom", "mpt")
_SINKS = ("gpt_oss",)
_ATTENDING = ("full_attention", "sliding_attention", "chunked_attention")


def check_architecture(hf_model: Any, name: str) -> None:
    """Refuse a model that is not on the list, or is set up so that its entry does not hold.

    Args:
        name: shown to users.

    Raises:
        UserError: with the reason, and what to choose instead.
    """
    config = hf_model.config
    text = config.get_text_config()
    reason = _obstacle(hf_model, config, text)
    if reason:
        raise UserError(f"{name or config.model_type}: {reason}")


def _obstacle(hf_model: Any, config: Any, text: Any) -> str:
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        return f"{kind} has an encoder; choose a model that only decodes (a causal LM)"
    layers = getattr(text, "layer_types", None) or ()
    recurrent = sorted({layer for layer in layers if layer not in _ATTENDING})
    stateful = getattr(hf_model, "_is_stateful", False)
    if stateful or recurrent or not getattr(text, "num_attention_heads", None):
        what = ", ".join(recurrent) or kind
        return (
            f"its state ({what}) cannot be rolled back, so rejected draft tokens could not be "
            "taken back; choose a model with attention in every layer"
        )
    if kind in _ALIBI or getattr(text, "alibi", False):
        return (
            f"{kind} tells positions by a bias on the attention (ALiBi) that it makes by itself, "
            "not from the positions it is fed; choose a model with rotary or learned positions"
        )
    if kind in _SINKS:
        return f"{kind} attends to sinks beside the tokens, which no mask expresses; {_choose()}"
    if "chunked_attention" in layers:
        return f"{kind} attends in chunks, which the masks here do not express; {_choose()}"
    if kind not in ARCHITECTURES:
        return f"the architecture {kind} is not supported; {_choose()}"
    if getattr(text, "use_bidirectional_attention", False):
        return "it attends to what follows as well, so it cannot decode; choose a causal LM"
    return ""


def _choose() -> str:
    return f"choose one of {', '.join(ARCHITECTURES)}"


def windows_of(config: Any) -> Windows:
    """The sliding windows of a model on the list."""
    config = config.get_text_config()
    attention = ARCHITECTURES[config.model_type]
    count: int = config.num_hidden_layers
    size: int = getattr(config, "sliding_window", None) or 0
    if attention is Attention.FULL or not size:
        return Windows()
    if attention is Attention.SLIDING:
        return Windows(size, (True,) * count)
    layers = tuple(kind == "sliding_attention" for kind in config.layer_types)
    return Windows(size, layers) if any(layers) else Windows()


def context_of(config: Any) -> int:
    """The most tokens a row may have.

    Two tables of rotary frequencies (LongRoPE) are one too many: which of them holds for a
    token would depend on the longest row of the batch, so a row ends where the first ends.
    """
    config = config.get_text_config()
    context: int = getattr(config, "max_position_embeddings", None) or UNBOUNDED
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        context = min(context, int(rope["original_max_position_embeddings"]))
    return context
