"""Which token is drawn from logits: greedy, or a lossless sample.

Every draw has a random number of its own, keyed by (seed, request, position, purpose),
so a neighbour in the batch never changes what a row draws, and the same seed gives the
same tokens (for the same sequence of K).
"""

from __future__ import annotations

import hashlib
import struct

import torch
from torch import Tensor

from engine.config.settings import Sampling
from engine.models.causal_lm import LanguageModel
from engine.models.host_transfer import to_device
from engine.rounds.sequence import Sequence

PROPOSE, ACCEPT, RESIDUAL = 0, 1, 2
"""The purposes of a random number."""

_COLDEST = 1e-37
"""The smallest temperature that float32 can divide by."""


def uniform(seed: int, request: int, position: int, purpose: int) -> float:
    """The random number of one draw, in [0, 1): a hash of its key, so there is no state
    that a neighbour could disturb."""
    key = struct.pack("<4Q", seed & 0xFFFF_FFFF_FFFF_FFFF, request, position, purpose)
    bits = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
    return float(bits >> 11) / float(1 << 53)


def warp(logits: Tensor, sampling: Sampling) -> Tensor:
    """Temperature, top-k and top-p, in float32.

    Args:
        logits: [..., vocabulary].

    Returns:
        Probabilities of the same shape. Ties at the top-k boundary are all kept.
    """
    wide = logits.float()
    # below the best one, so that the smallest temperature overflows to −inf and not to NaN
    scaled = (wide - wide.amax(dim=-1, keepdim=True)) / max(sampling.temperature, _COLDEST)
    if 0 < sampling.top_k < scaled.shape[-1]:
        smallest = scaled.topk(sampling.top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < smallest, float("-inf"))
    probs = scaled.softmax(dim=-1)
    if sampling.top_p < 1.0:
        ordered, order = probs.sort(dim=-1, descending=True)
        before = ordered.cumsum(dim=-1) - ordered
        keep = torch.zeros_like(probs, dtype=torch.bool)
        keep.scatter_(-1, order, before < sampling.top_p)
        probs = probs.masked_fill(~keep, 0.0)
        probs = probs / probs.sum(dim=-1, keepdim=True)
    return probs


def draw(probs: Tensor, u: Tensor) -> Tensor:
    """Inverse-CDF draw.

    Args:
        probs: [rows, vocabulary], non-negative, not all zero; need not be normalised.
        u: [rows], in [0, 1).

    Returns:
        Token of each row, [rows]; never one of probability zero.
    """
    cumulative = probs.double().cumsum(dim=-1)
    threshold = u.to(cumulative)[:, None] * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, threshold, right=True)[:, 0]
    last = probs.shape[-1] - 1 - (probs.flip(-1) > 0).long().argmax(dim=-1)
    return torch.minimum(index, last)


class Sampler:
    """Draws draft tokens, and warps the logits that verify them
    (`engine.rounds.rejection_sampler`).

    Args:
        sampling: temperature, truncation and seed.
        vocabulary: of the target; a draft's ids beyond it are never drafted.
        never: [n] further ids that the draft must not draft.
    """

    def __init__(self, sampling: Sampling, vocabulary: int, never: Tensor | None = None) -> None:
        self.sampling = sampling
        self.vocabulary = vocabulary
        self.never = never

    def warp(self, logits: Tensor) -> Tensor:
        """The target's logits as probabilities to draw from, [..., vocabulary]."""
        return warp(logits, self.sampling)

    def draftable(self, model: LanguageModel, logits: Tensor) -> Tensor:
        """The draft's logits, [rows, head columns], without the ids that it must not draft."""
        if model.hot_ids is None and logits.shape[-1] > self.vocabulary:
            logits = logits[..., : self.vocabulary]
        if self.never is None:
            return logits
        return logits.index_fill(-1, self.never.to(logits.device), float("-inf"))

    def forced(self, row: Sequence) -> int:
        """How many of the row's next draft tokens are given by hand
        (`engine.microscope.inspect`)."""
        return 0

    def draft(
        self, model: LanguageModel, logits: Tensor, rows: list[Sequence], step: int
    ) -> tuple[Tensor, Tensor | None]:
        """Draw draft token number `step` of every row from the draft's logits.

        Args:
            model: the draft.
            logits: [rows, head columns].

        Returns:
            Tokens [rows], and q [rows, vocabulary] (None for greedy decoding).
        """
        logits = self.draftable(model, logits)
        if self.sampling.greedy:
            return model.token_ids(logits.max(dim=-1).indices), None
        q = warp(logits, self.sampling)
        if model.hot_ids is not None or q.shape[-1] < self.vocabulary:
            ids = model.token_ids(torch.arange(q.shape[-1], device=q.device))
            full = q.new_zeros((q.shape[0], self.vocabulary))
            q = full.index_copy(1, ids, q)
        # the draft token at step k would be committed at content index n + k
        u = self._uniforms(rows, [row.length + step for row in rows], PROPOSE, q.device)
        return draw(q, u), q

    def choose(self, logits: Tensor, rows: list[Sequence], positions: list[int]) -> Tensor:
        """The target's own token for each row, [rows], from logits [rows, vocabulary]."""
        if self.sampling.greedy:
            return logits.argmax(dim=-1)
        u = self._uniforms(rows, positions, RESIDUAL, logits.device)
        return draw(warp(logits, self.sampling), u)

    def _uniforms(
        self, rows: list[Sequence], positions: list[int], purpose: int, device: torch.device
    ) -> Tensor:
        seed = self.sampling.seed
        drawn = [
            uniform(seed, row.index, position, purpose)
            for row, position in zip(rows, positions, strict=True)
        ]
        return to_device(torch.tensor(drawn, dtype=torch.float64), device)
