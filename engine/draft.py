"""What is proposed: the draft seam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.confidence import Confidence, Stopping
from engine.costs import Costs
from engine.layout.base import Layout
from engine.sampling import Sampler
from engine.sequence import Sequence


@dataclass(frozen=True)
class Proposals:
    """The proposals of a round.

    Attributes:
        tokens: [rows, K], K the longest; beyond a row's own K_i any id.
        counts: K_i of each row.
        probs: q, [rows, K, vocabulary]: the distribution each proposal was drawn from;
            None where each is certain (greedy decoding, lookup).
        texts: places of rows whose proposals are text, and no model's.
    """

    tokens: Tensor
    counts: list[int]
    probs: Tensor | None = None
    texts: tuple[int, ...] = ()


class Drafter(Protocol):
    """Proposes, and is told what became of it."""

    def limit(self, row: Sequence, draft_tokens: int) -> int:
        """The most that may be proposed for a row in this round, K_i."""

    def propose(self, layout: Layout, counts: list[int], sampler: Sampler) -> Proposals:
        """Propose up to `counts[place]` tokens for each row of the batch."""

    def learn(self, layout: Layout, row: Sequence, accepted: int, proposed: int) -> None:
        """Note how many proposals of a row were accepted and kept (before `settle`)."""


class NoDraft:
    """K = 0: plain autoregressive decoding through the same loop."""

    def limit(self, row: Sequence, draft_tokens: int) -> int:
        return 0

    def propose(self, layout: Layout, counts: list[int], sampler: Sampler) -> Proposals:
        return _nothing([0] * len(counts), torch.device("cpu"))

    def learn(self, layout: Layout, row: Sequence, accepted: int, proposed: int) -> None:
        pass


class ModelDraft:
    """A draft model with its own cache, kept across rounds (design.md §3).

    Each round it is fed the committed tokens from slot min(n − 2, valid length) on,
    usually two: that fills the slot which full acceptance leaves empty, is idempotent
    otherwise, and stays rectangular. Rounds without drafting leave more to catch up.

    Args:
        context: positions that the draft has.
        costs: where given (`--draft-tokens auto`), a row stops where one more proposal is
            not worth what it costs (`engine.confidence`).
    """

    def __init__(self, context: int, costs: Costs | None = None) -> None:
        self.context = context
        self._costs = costs
        self._confidence = Confidence()
        self._kinds: dict[int, list[int]] = {}

    def limit(self, row: Sequence, draft_tokens: int) -> int:
        return max(0, min(row.draft_limit(draft_tokens), self.context - row.length))

    def propose(self, layout: Layout, counts: list[int], sampler: Sampler) -> Proposals:
        side = layout.draft
        assert side is not None
        steps = max(counts)
        if steps == 0:
            return _nothing(counts, side.model.device)
        behind = [
            row.length - side.valid[row.index]
            for row, count in zip(layout.rows, counts, strict=True)
            if count
        ]
        catch_up = min(max(2, *behind), max(row.length for row in layout.rows))
        block = layout.committed(catch_up, side.model.device)
        logits = layout.feed(side, block, -catch_up, keep=1)[:, -1]
        for row in layout.rows:
            if side.valid[row.index] >= row.length - catch_up and row.length <= self.context:
                side.valid[row.index] = row.length
        tokens: list[Tensor] = []
        probs: list[Tensor] = []
        stopping = None
        if self._costs is not None:
            forced = [sampler.forced(row) for row in layout.rows]
            stopping = Stopping(self._confidence, self._costs, counts, forced)
        for step in range(steps):
            if stopping is not None and not stopping.goes_on(step, logits):
                break
            token, q = sampler.propose(side.model, logits, layout.rows, step)
            tokens.append(token)
            if q is not None:
                probs.append(q)
            if step + 1 == steps or (stopping is not None and not stopping.pays(step + 1)):
                break
            logits = layout.feed(side, token[:, None], step)[:, -1]
        if stopping is not None:
            counts = stopping.counts
            self._kinds = {
                row.index: kinds for row, kinds in zip(layout.rows, stopping.kinds, strict=True)
            }
        if not tokens:
            return _nothing(counts, side.model.device)
        return Proposals(
            torch.stack(tokens, dim=1), list(counts), torch.stack(probs, dim=1) if probs else None
        )

    def learn(self, layout: Layout, row: Sequence, accepted: int, proposed: int) -> None:
        assert layout.draft is not None
        self._confidence.learn(self._kinds.pop(row.index, []), accepted)
        # where the draft's own states stood in for the target's, its K/V are a guess;
        # the last proposal was never fed, so full acceptance leaves its slot empty
        if proposed and not layout.draft.model.reads_features:
            layout.draft.valid[row.index] += min(accepted, proposed - 1)


def _nothing(counts: list[int], device: torch.device) -> Proposals:
    return Proposals(torch.zeros((len(counts), 0), dtype=torch.int64, device=device), list(counts))
