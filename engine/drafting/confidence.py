"""How often a draft token comes true, by how sure its source is of it."""

from __future__ import annotations

import numpy as np

BINS = 12
"""Kinds of draft tokens that are counted apart, by the share that their source gives them."""

WEIGHT = 4.0
"""Draft tokens that the first guess counts for: as often accepted as the source says."""


class Confidence:
    """Chances of acceptance by the source's own certainty, learned as the run goes on.

    Args:
        trust: of what the source says, how much is believed at first.
    """

    def __init__(self, trust: float = 1.0) -> None:
        middle = trust * (np.arange(BINS) + 0.5) / BINS
        self._hits, self._trials = middle * WEIGHT, np.full(BINS, WEIGHT)

    def chance(self, share: float) -> tuple[float, int]:
        """The chance that a draft token is accepted of which its source is so sure, and its kind.

        Args:
            share: 0 … 1: how often the token followed where n-grams were counted.
        """
        kind = min(int(share * BINS), BINS - 1)
        return float(self._hits[kind] / self._trials[kind]), kind

    def learn(self, kinds: list[int], accepted: int) -> None:
        """Count a row's draft tokens, of these kinds, in order: the first `accepted` came true."""
        for place, kind in enumerate(kinds[: accepted + 1]):
            self._trials[kind] += 1.0
            self._hits[kind] += place < accepted
