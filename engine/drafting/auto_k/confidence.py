"""How sure a draft is of itself, and how far that can be believed.

A draft's draft tokens are far from equally good: where its likeliest token has 0.9 of the
probability, the target nearly always agrees; where it has 0.2, seldom. So a row stops
drafting where one more token is not worth what verifying it costs. It stops before the
token is drawn, by what came before it alone, so that sampling stays lossless.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from engine.drafting.auto_k.costs import Costs

BINS = 12
"""Kinds of draft tokens that are told apart, by the probability of the likeliest token."""

WEIGHT = 4.0
"""Draft tokens that the first guess counts for: as often accepted as the draft says."""

ENOUGH = 0.25
"""Chance from which a token is drafted while costs are not known."""

Chances = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Confidence:
    """Chances of acceptance by the draft's own certainty, learned as the run goes on.

    Args:
        trust: of what the draft says, how much is believed at first.
    """

    def __init__(self, trust: float = 1.0) -> None:
        middle = trust * (np.arange(BINS) + 0.5) / BINS
        self._hits, self._trials = middle * WEIGHT, np.full(BINS, WEIGHT)

    def chances(self, logits: Tensor) -> tuple[Chances, list[int]]:
        """For each row's next draft token: how likely it is accepted, and its kind.

        Args:
            logits: of the draft, [rows, head columns].
        """
        highest = logits.float().softmax(dim=-1).amax(dim=-1).cpu().double().numpy()
        kinds = np.minimum((highest * BINS).astype(np.int64), BINS - 1)
        chances: Chances = self._hits[kinds] / self._trials[kinds]
        return chances, [int(kind) for kind in kinds]

    def chance(self, share: float) -> tuple[float, int]:
        """The same for one draft token of which its source is so sure."""
        kind = min(int(share * BINS), BINS - 1)
        return float(self._hits[kind] / self._trials[kind]), kind

    @property
    def usual(self) -> float:
        """Chance of a draft token of which nothing is known yet."""
        made = self._trials - WEIGHT
        return float((self._hits.sum() + 1.0) / (self._trials.sum() + 2.0)) if made.any() else 0.5

    def learn(self, kinds: list[int], accepted: int) -> None:
        """Note what became of a row's draft tokens, of these kinds, in order."""
        for place, kind in enumerate(kinds[: accepted + 1]):
            self._trials[kind] += 1.0
            self._hits[kind] += place < accepted


class Stopping:
    """Which rows go on drafting, in one round.

    Args:
        counts: the most that each row may draft.
        forced: how many of them are given by hand, and made whatever they are worth.
    """

    def __init__(
        self, confidence: Confidence, costs: Costs, counts: list[int], forced: list[int]
    ) -> None:
        self._confidence, self._costs = confidence, costs
        self._joint = np.ones(len(counts))
        self._before: list[list[float]] = [[] for _ in counts]
        self._price = costs.price(ENOUGH)
        self.counts = list(counts)
        self._forced = forced
        self.kinds: list[list[int]] = [[] for _ in counts]

    def goes_on(self, step: int, logits: Tensor) -> bool:
        """Judge draft token `step` (from 0) of each row before it is drawn. False: none is worth
        it, and the round has `counts` draft tokens."""
        chances, kinds = self._confidence.chances(logits)
        joint = self._joint * chances
        for row, count in enumerate(self.counts):
            pays = count > step and self._price.pays(joint[row], self._before[row])
            if pays or min(count, self._forced[row]) > step:
                self._joint[row] = joint[row]
                self._before[row].append(joint[row])
                self.kinds[row].append(kinds[row])
            else:
                self.counts[row] = min(count, step)
        return max(self.counts) > step

    def pays(self, step: int) -> bool:
        """Whether the draft's forward for draft token `step` is worth its time."""
        going = [joint for joint, c in zip(self._joint, self.counts, strict=True) if c > step]
        expected = float(sum(going)) * self._confidence.usual
        if going and max(self._forced) > step:
            return True
        if going and expected >= self._costs.draft_tokens_worth():
            return True
        self.counts = [min(count, step) for count in self.counts]
        return False
