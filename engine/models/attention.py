"""Attention: how the queries of a block meet the K/V that they may see.

One function of ours serves every architecture (registered with transformers), for two
reasons. The query heads that share a K/V head are folded into the query length, so K and V
are never copied to every head. And a ragged block, packed into one long row for everything
else, is cut into a few rectangles here: were it padded to its widest row, one row that
feeds nine tokens would make seven others, that feed one, pay for nine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from engine.models.block_cost import split
from engine.models.forward_input import Feed, Packing
from engine.models.host_transfer import Everywhere
from engine.models.windows import Windows

ATTENTION = "batchspec"
"""The name under which our attention function is registered with transformers."""

ALIGNED = 16
"""Masks have rows of a multiple of this many numbers, as CUDA's kernels want them; else they
copy the mask in every layer."""


@dataclass(frozen=True)
class Band:
    """A rectangle of a block: adjacent rows, and adjacent tokens of each."""

    rows: slice
    tokens: slice

    def mirrored(self, tokens: int) -> Band:
        """The same counted from a block's last token on."""
        return Band(self.rows, slice(tokens - self.tokens.stop, tokens - self.tokens.start))


def bands(counts: list[int]) -> list[Band]:
    """Cut a ragged block into rectangles, as cheap as can be.

    The first tokens of all rows make one band (rows are read as a view: leaving some out
    would copy K and V); what the wide rows have beyond makes one for each run of them.

    Args:
        counts: tokens of each row.
    """
    common = split(counts)
    found = [Band(slice(0, len(counts)), slice(0, common))]
    start = 0
    while start < len(counts):
        stop = start
        while stop < len(counts) and counts[stop] > common:
            stop += 1
        if stop > start:
            found.append(Band(slice(start, stop), slice(common, max(counts[start:stop]))))
        start = stop + 1
    return found


class Attending:
    """What the queries of one forward may see, made once for all its layers.

    Args:
        feed: the block.
        windows: of the model.
        groups: query heads for each K/V head.
        dtype, device: of the model's states.
        packing: where the block is packed.
    """

    def __init__(
        self,
        feed: Feed,
        windows: Windows,
        groups: int,
        dtype: torch.dtype,
        device: torch.device,
        packing: Packing | None,
    ) -> None:
        masks = feed.masks(windows, device)
        rows, _, tokens, _ = masks.shape
        whole = [Band(slice(0, rows), slice(0, tokens))]
        # on a GPU launching one more kernel costs more than empty cells do
        apart = packing is not None and device.type == "cpu"
        self._bands = bands(feed.counts or []) if apart else whole
        if apart and feed.latest:
            self._bands = [band.mirrored(tokens) for band in self._bands]
        self._masks = [
            Everywhere(_additive(masks[band.rows, :, band.tokens], groups, dtype))
            for band in self._bands
        ]
        self._packed = packing is not None
        if packing is not None:
            picks, back = packing.through([(b.rows, b.tokens) for b in self._bands])
            self._picks, self._back = [Everywhere(pick) for pick in picks], Everywhere(back)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, kind: int, scaling: float, **rest: Any
    ) -> Tensor:
        """Attention of one layer, each band by itself.

        Args:
            query: [rows, heads, tokens, dim], or [1, heads, real tokens, dim] if packed.
            key, value: [rows, kv heads, columns, dim].
            kind: of layer: 1 if it has a window and the masks differ.

        Returns:
            [rows, tokens, heads, dim] ([1, real tokens, …] if packed).
        """
        if not self._packed:
            seen = _of_kind(self._masks[0].on(query.device), kind)
            return _folded(query, key, value, seen, scaling, **rest)
        flat, pieces = query[0].transpose(0, 1), []
        for band, mask, pick in zip(self._bands, self._masks, self._picks, strict=True):
            rows = band.rows.stop - band.rows.start
            picked = flat.index_select(0, pick.on(query.device))
            picked = picked.reshape(rows, -1, *flat.shape[1:])
            seen = _of_kind(mask.on(query.device), kind)
            out = _folded(
                picked.transpose(1, 2), key[band.rows], value[band.rows], seen, scaling, **rest
            )
            pieces.append(out.flatten(0, 1))
        joined = torch.cat(pieces) if len(pieces) > 1 else pieces[0]
        return joined.index_select(0, self._back.on(query.device))[None]


def _additive(mask: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    """0 where a query may attend and −∞ elsewhere: [rows, kinds, groups · tokens, columns]."""
    rows, kinds, tokens, columns = mask.shape
    aligned = -(-columns // ALIGNED) * ALIGNED
    seen = torch.full(
        (rows, kinds, groups * tokens, aligned), -torch.inf, dtype=dtype, device=mask.device
    )[..., :columns]
    return seen.masked_fill_(mask.repeat(1, 1, groups, 1), 0.0)


def _of_kind(mask: Tensor, kind: int) -> Tensor:
    kind = min(kind, mask.shape[1] - 1)
    return mask[:, kind : kind + 1]


def _folded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float,
    softcap: float | None = None,
) -> Tensor:
    """The heads that share K and V as one long query: [rows, tokens, heads, dim]."""
    rows, heads, tokens, dim = query.shape
    kv_heads = key.shape[1]
    folded = query.reshape(rows, kv_heads, heads // kv_heads * tokens, dim)
    if softcap is None:
        out = scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
    else:
        scores = folded @ key.transpose(2, 3) * scaling
        scores = softcap * (scores / softcap).tanh() + mask
        out = scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype) @ value
    return out.reshape(rows, heads, tokens, out.shape[-1]).transpose(1, 2)


class AttentionPlan:
    """Where a model's forward leaves what its layers may attend to: `current`.

    The attention layers of a model share one object.
    """

    current: Attending | None = None


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: by the plan, whatever mask is passed.

    Args:
        query: [rows, heads, tokens, dim]; key, value: [rows, kv heads, columns, dim].
        softcap: scores s become softcap · tanh(s / softcap) (Gemma 2).

    Returns:
        [rows, tokens, heads, dim], and None in place of attention weights.
    """
    plan: Attending | None = getattr(module, "plan", AttentionPlan).current
    assert plan is not None, "a forward without a plan"
    scaling = _default_scaling(module, query.shape[-1]) if scaling is None else scaling
    kind = int(bool(module.has_window))
    return plan.attend(query, key, value, kind, scaling, softcap=softcap), None


def _default_scaling(module: nn.Module, dim: int) -> float:
    """The scaling where none is given: GPT-2's in the older releases, which has switches."""
    scaling: float = dim**-0.5 if getattr(module, "scale_attn_weights", True) else 1.0
    if getattr(module, "scale_attn_by_inverse_layer_idx", False):
        scaling /= int(module.layer_idx) + 1  # type: ignore[arg-type]
    return scaling


def prepare_layers(hf_model: nn.Module, windows: Windows) -> AttentionPlan:
    """Tell each attention layer whether it has a window, and where it finds the plan.

    Returns:
        The plan of the model: the one that it has, if it was prepared before.
    """
    layers = [module for module in hf_model.modules() if hasattr(module, "layer_idx")]
    plans = (vars(module).get("plan") for module in layers)
    plan = next((found for found in plans if isinstance(found, AttentionPlan)), AttentionPlan())
    for module in layers:
        index: int = module.layer_idx  # type: ignore[assignment]
        module.has_window = windows.size > 0 and windows.layers[index]  # type: ignore[assignment]
        module.plan = plan  # type: ignore[assignment]
    return plan


AttentionInterface.register(ATTENTION, grouped_attention)
