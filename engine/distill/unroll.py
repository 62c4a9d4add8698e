"""An EAGLE-style draft over whole sequences, as it will run: some steps ahead of the target.

In step 1 it is handed the target's vector before every token. In step j its own state of
step j − 1 stands there instead, and it attends to what it would find in its cache then: keys
of step 1 up to the last committed token, and one key of each step since (EAGLE-3's
training-time test, arXiv 2503.01840, figure 6). A draft that is trained on step 1 alone
takes its own states for the target's, and is wrong from its second draft token on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface

from engine.models.eagle_format import EagleDraft

UNROLLED = "batchspec_unrolled"
"""The name of the attention under which a draft is trained."""


def unroll(draft: EagleDraft, ids: Tensor, states: Tensor, steps: int) -> Iterator[Tensor]:
    """The draft's own normed states of each step.

    Args:
        ids: right-padded, [rows, tokens].
        states: the target's, those of all sources side by side, [rows, tokens, sources ·
            hidden]; the final ones first.
        steps: how many.

    Yields:
        [rows, tokens, hidden] a step. Tokens before the step's number mean nothing.
    """
    hidden = states.shape[-1] // (len(draft.features.layers) + 1)
    states = states.to(draft.features.project.weight.dtype)
    before = draft.features(torch.split(states, hidden, dim=-1))
    embedded = draft.model.embed_tokens(ids)
    tokens = ids.shape[1]
    places = torch.arange(tokens, device=ids.device)
    keys = _Keys()
    draft.draft.set_attn_implementation(UNROLLED)
    for step in range(1, steps + 1):
        inputs = draft.fusion(embedded, pad(before, (0, 0, 1, 0))[:, :tokens])
        keys.mask = step_mask(places, step)[None, None]
        own = draft.model(
            inputs_embeds=inputs,
            position_ids=places[None].expand(len(ids), -1),
            attention_mask=keys.mask,
            use_cache=False,
            unrolled=keys,
        ).last_hidden_state
        yield own
        before = draft.fusion.carry(own)


def step_mask(places: Tensor, step: int) -> Tensor:
    """What a token may attend to in a step, [tokens, step · tokens], True = attend."""
    row, column = places[:, None], places[None]
    committed = column <= row - (step - 1)
    drafted = [column == row - (step - other) for other in range(2, step + 1)]
    return torch.cat([committed, *drafted], dim=1)


class _Keys:
    """Keys and values of the steps so far, by layer."""

    def __init__(self) -> None:
        self.mask: Tensor | None = None
        self._seen: dict[int, tuple[Tensor, Tensor]] = {}

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer in self._seen:
            keys, values = self._seen[layer]
            key, value = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        self._seen[layer] = (key, value)
        return key, value


def _unrolled_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *,
    unrolled: _Keys | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    mask = attention_mask
    if unrolled is not None:
        key, value = unrolled.extend(module.layer_idx, key, value)
        mask = unrolled.mask
    out = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(UNROLLED, _unrolled_attention)
