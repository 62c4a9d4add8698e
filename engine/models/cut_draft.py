"""The draft: the target's own architecture with a part of its layers and a head over hot tokens."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.config.errors import UserError


def check_target(model: Any) -> None:
    """Refuse, with the reason, what cannot be cut into layers."""
    inner = getattr(model, "model", None)
    parts = ("layers", "embed_tokens", "norm")
    missing = [part for part in parts if not hasattr(inner, part)]
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    name = type(model).__name__
    if inner is None or missing:
        raise UserError(
            f"distill needs a Llama-like causal language model (model.layers, model.embed_tokens, "
            f"model.norm); {name} has another layout"
        )
    if not isinstance(inner.layers, nn.ModuleList) or len(inner.layers) < 2:
        raise UserError(f"distill needs a target with two layers or more; {name} has fewer")
    if not isinstance(head, nn.Linear):
        raise UserError(f"distill needs a linear head; {name} has {type(head).__name__}")
    for part in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(model.config, part, None) not in (None, 1.0):
            raise UserError(
                f"distill cannot share the head of {name}: it scales its logits ({part})"
            )


def choose_layers(count: int, total: int) -> list[int]:
    """``count`` of ``total`` layers: the first ones and the last ones, two thirds of them first."""
    if not 1 <= count <= total:
        raise UserError(f"--layers {count}: the target has {total} layers")
    last = min(count - 1, max(1, round(count / 3))) if count > 1 else 0
    return [*range(count - last), *range(total - last, total)]


def parse_layers(text: str, total: int) -> list[int]:
    """``8``, or a list of indices such as ``0-4,27-29``."""
    try:
        if "," not in text and "-" not in text:
            return choose_layers(int(text), total)
        layers: list[int] = []
        for part in text.split(","):
            first, _, last = part.partition("-")
            layers += range(int(first), int(last or first) + 1)
    except ValueError:
        raise UserError(f"--layers {text}: give a number or a list such as 0-4,27-29") from None
    if layers != sorted(set(layers)) or not layers or layers[0] < 0 or layers[-1] >= total:
        raise UserError(f"--layers {text}: rising indices below {total} are wanted")
    return layers


def draft_config(config: Any, layers: Sequence[int]) -> Any:
    """The target's config cut down to ``layers``."""
    small = copy.deepcopy(config)
    small.num_hidden_layers = len(layers)
    small.tie_word_embeddings = False
    if getattr(small, "layer_types", None):
        small.layer_types = [config.layer_types[i] for i in layers]
    return small


def build_draft(
    target: Any, layers: Sequence[int], hot_ids: Tensor, dtype: torch.dtype | None = None
) -> Any:
    """A draft that starts as the target's own layers.

    Embedding, final norm and rotary tables are the target's own modules where the dtype agrees;
    the head holds the rows of the hot tokens. All three are frozen.
    """
    check_target(target)
    head = target.get_output_embeddings()
    dtype = dtype or head.weight.dtype
    device = head.weight.device
    with torch.device("meta"):
        draft = type(target)(draft_config(target.config, layers))
    inner = draft.model
    for place, index in enumerate(layers):
        layer = copy.deepcopy(target.model.layers[index]).to(dtype)
        settle(layer, place, draft.config)
        layer.requires_grad_(True)
        inner.layers[place] = layer
    for name in ("embed_tokens", "norm"):
        module = getattr(target.model, name)
        setattr(
            inner, name, module if module.weight.dtype == dtype else copy.deepcopy(module).to(dtype)
        )
    if hasattr(target.model, "rotary_emb"):
        inner.rotary_emb = copy.deepcopy(target.model.rotary_emb)
    hot = hot_ids.to(device)
    draft.lm_head = nn.Linear(
        head.in_features, len(hot), bias=head.bias is not None, device=device, dtype=dtype
    )
    with torch.no_grad():
        draft.lm_head.weight.copy_(head.weight[hot])
        if head.bias is not None:
            draft.lm_head.bias.copy_(head.bias[hot])
    for module in (inner.embed_tokens, inner.norm, draft.lm_head):
        module.requires_grad_(False)
    draft.generation_config = copy.deepcopy(getattr(target, "generation_config", None))
    draft.eval()
    return draft


def settle(layer: nn.Module, place: int, config: Any) -> None:
    """Tell a layer its new place, by which its attention finds the cache, and its new model's
    config, by which it learns of a change of the attention function."""
    for module in layer.modules():
        if hasattr(module, "layer_idx"):
            module.layer_idx = place  # type: ignore[assignment]
        if hasattr(module, "config"):
            module.config = config


def hot_vocabulary(counts: Tensor, size: int, always: set[int]) -> Tensor:
    """The ``size`` most frequent ids, sorted; those in ``always`` (eos and the like) are in it."""
    size = min(size, len(counts))
    ranked = counts.clone().double()
    ranked[sorted(i for i in always if 0 <= i < len(counts))] = float("inf")
    return ranked.topk(size).indices.sort().values
