"""What is drafted: the draft seam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.rounds.layout import Layout
from engine.rounds.sampling import Sampler
from engine.rounds.sequence import Sequence
from engine.rounds.side import Side


@dataclass(frozen=True)
class DraftTokens:
    """The draft tokens of a round.

    Attributes:
        tokens: [rows, K], K the longest; beyond a row's own K_i any id.
        counts: K_i of each row.
        probs: q, [rows, K, vocabulary]: the distribution each draft token was drawn from;
            None where each is certain (greedy decoding, lookup).
        texts: places of rows whose draft tokens are text, and no model's.
    """

    tokens: Tensor
    counts: list[int]
    probs: Tensor | None = None
    texts: tuple[int, ...] = ()


class Drafter(Protocol):
    """Drafts, and learns from what was accepted."""

    def draft(self, layout: Layout, draft_tokens: int, sampler: Sampler) -> DraftTokens:
        """Draft up to K tokens for each row of the batch; a row may have fewer, K_i."""

    def learn(self, layout: Layout, row: Sequence, accepted: int, drafted: int) -> None:
        """Note how many draft tokens of a row were accepted and kept (before `settle`)."""


class NoDraft:
    """K = 0: plain autoregressive decoding through the same loop."""

    def draft(self, layout: Layout, draft_tokens: int, sampler: Sampler) -> DraftTokens:
        return _nothing([0] * len(layout.rows), torch.device("cpu"))

    def learn(self, layout: Layout, row: Sequence, accepted: int, drafted: int) -> None:
        pass


class ModelDraft:
    """A draft model with its own cache, kept across rounds.

    Each round it is fed the committed tokens from each row's valid length on: one, or two
    after full acceptance, which leaves a slot empty; more where a row was not drafted for.
    Where shapes are fixed, all rows are fed alike, two at least: what is fed again is
    computed to the same.

    Args:
        context: positions that the draft has.
        threshold: a row drafts no further token once the probability that the draft gave to its
            likeliest token, times the same of all before it, is smaller. It does not depend on
            the tokens that were drawn, so sampling stays lossless. 0: never.
    """

    def __init__(self, context: int, threshold: float = 0.0) -> None:
        self.context = context
        self.threshold = threshold

    def limit(self, row: Sequence, draft_tokens: int) -> int:
        """The most that may be drafted for a row, K_i."""
        return max(0, min(row.draft_limit(draft_tokens), self.context - row.length))

    def draft(self, layout: Layout, draft_tokens: int, sampler: Sampler) -> DraftTokens:
        counts = [self.limit(row, draft_tokens) for row in layout.rows]
        return self.draft_up_to(layout, counts, sampler)

    def draft_up_to(self, layout: Layout, counts: list[int], sampler: Sampler) -> DraftTokens:
        """Draft at most `counts[place]` tokens for each row."""
        side = layout.draft
        assert side is not None
        if max(counts) == 0:
            return _nothing(counts, side.model.device)
        logits = self._catch_up(layout, side, counts)
        tokens: list[Tensor] = []
        probs: list[Tensor] = []
        chances = torch.ones(len(counts))
        forced = [sampler.forced(row) for row in layout.rows]
        for step in range(max(counts)):
            token, q = sampler.draft(side.model, logits, layout.rows, step)
            tokens.append(token)
            if q is not None:
                probs.append(q)
            if self.threshold:
                chances *= logits.float().softmax(dim=-1).amax(dim=-1).cpu()
                counts = [
                    count if chance >= self.threshold or step + 1 < given else min(count, step + 1)
                    for count, chance, given in zip(counts, chances.tolist(), forced, strict=True)
                ]
            if max(counts) == step + 1:
                break
            going = _real(side, [int(count > step + 1) for count in counts])
            logits = layout.feed(side, token[:, None], step, keep=1, counts=going)[:, -1]
        return DraftTokens(
            torch.stack(tokens, dim=1), list(counts), torch.stack(probs, dim=1) if probs else None
        )

    def _catch_up(self, layout: Layout, side: Side, counts: list[int]) -> Tensor:
        """Feed what was committed since a row was last drafted for; logits [rows, columns].

        Rows that draft nothing are left where they are.
        """
        behind = [
            max(1, row.length - side.valid[row.index]) if count else 0
            for row, count in zip(layout.rows, counts, strict=True)
        ]
        widest = max(behind) if side.fixed is None else max(2, *behind)
        widest = min(widest, max(row.length for row in layout.rows))
        block = layout.committed(widest, side.model.device)
        fed = _real(side, behind)
        logits = layout.feed(side, block, -widest, keep=1, counts=fed, latest=True)[:, -1]
        for row, count in zip(layout.rows, counts, strict=True):
            reached = side.valid[row.index] >= row.length - widest and row.length <= self.context
            if count or (fed is None and reached):
                side.valid[row.index] = row.length
        return logits

    def learn(self, layout: Layout, row: Sequence, accepted: int, drafted: int) -> None:
        assert layout.draft is not None
        # where the draft's own state stood in for the target's, its K/V are a guess;
        # the last draft token was never fed, so full acceptance leaves its slot empty
        if drafted and not layout.draft.model.carries_state:
            layout.draft.valid[row.index] += min(accepted, drafted - 1)


def _real(side: Side, counts: list[int]) -> list[int] | None:
    """How many tokens of each row are fed; None where all must be, for the shape's sake."""
    return counts if side.fixed is None else None


def _nothing(counts: list[int], device: torch.device) -> DraftTokens:
    return DraftTokens(
        torch.zeros((len(counts), 0), dtype=torch.int64, device=device), list(counts)
    )
