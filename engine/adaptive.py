"""How many tokens are proposed in a round: a fixed K, or the K that pays most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.costs import Costs, forwards
from engine.records import RoundRecord

LARGEST = 8
"""The largest K that `auto` considers."""

FIRST = (0, 2, 0, 2)
"""K of the first rounds: what a round and a proposal cost, and a first idea of acceptance."""

TRIALS = 12
"""First proposals of the draft that make this first idea worth believing: a batch of few rows
begins with more such rounds, up to as many."""

REGRET = 0.01
"""Share of the time that may be lost to trying other values of K."""

FORGET = 0.99
"""How fast old acceptance fades, a round."""


@dataclass(frozen=True)
class Choice:
    """K of a round, and why."""

    draft_tokens: int
    reason: str = ""


class DraftTokens(Protocol):
    """Chooses K before any proposal of the round is drawn (else sampling were not lossless)."""

    largest: int

    def choose(self, rows: int) -> Choice:
        """K for a round of so many rows."""

    def observe(self, record: RoundRecord) -> None:
        """Learn from a finished round."""


class Fixed:
    """Always the same K. It may be set between rounds, up to `largest`."""

    def __init__(self, draft_tokens: int) -> None:
        self.draft_tokens = self.largest = draft_tokens

    def choose(self, rows: int) -> Choice:
        return Choice(min(self.draft_tokens, self.largest))

    def observe(self, record: RoundRecord) -> None:
        pass


class Selective:
    """As many as are worth it, row by row: for drafts that know what each proposal is worth
    (lookup and phrases). The draft itself leaves out what does not pay."""

    def __init__(self, costs: Costs, largest: int = LARGEST) -> None:
        self.largest = largest
        self.costs = costs

    def choose(self, rows: int) -> Choice:
        least = self.costs.least_chance(0.0)
        if not least:
            return Choice(self.largest, "measuring what a token costs")
        return Choice(self.largest, f"proposals accepted with a chance of {least:.0%} or more pay")

    def observe(self, record: RoundRecord) -> None:
        self.costs.observe(record)


class Adaptive:
    """K that maximises the expected tokens per second, 0 included.

    A row-round commits 1 + Σ_j s_j tokens, where s_j is the share of rows whose first j
    proposals were all made and accepted: a row may stop before its K (`engine.confidence`).
    What the round costs is learned by `Costs`. Another K than
    the best is tried only while all such trials together have cost less than `REGRET` of
    the time, by the clock.
    """

    def __init__(self, costs: Costs, largest: int = LARGEST) -> None:
        self.largest = largest
        self.costs = costs
        self._hits = [0.0] * (largest + 1)
        self._trials = [0.0] * (largest + 1)
        self._made = [0.0] * (largest + 1)
        self._ran = [0.0] * (largest + 1)
        self._rounds_of = [0.0] * (largest + 1)
        self._text = [0.0, 0.0, 0.0, 0.0]  # rows, those that proposed text, how much, accepted
        self._rounds = 0
        self._trial = 0
        self._trying = False
        self._best_pace = 0.0
        self._seconds = self._lost = 0.0

    def choose(self, rows: int) -> Choice:
        self._rounds += 1
        unsure = self._trials[1] < TRIALS and self._rounds <= 2 * TRIALS
        if self._rounds <= len(FIRST) or unsure or not self.costs.known:
            start = min(FIRST[(self._rounds - 1) % len(FIRST)], self.largest)
            self._trying = start > 0
            return Choice(start, f"measuring K = {start}")
        rates = [self._rate(k, rows) for k in range(self.largest + 1)]
        best = max(range(len(rates)), key=rates.__getitem__)
        self._best_pace = rates[best]
        trial = self._next_trial(best)
        loss = (1.0 - rates[trial] / rates[best]) * self._round_seconds(trial, rows)
        self._trying = self._lost + loss <= REGRET * self._seconds
        if self._trying:
            self._trial += 1
            return Choice(trial, f"trying K = {trial}; K = {best} makes {rates[best]:.0f} tok/s")
        other = f"K = 0: {rates[0]:.0f}" if best else f"K = {trial}: {rates[trial]:.0f}"
        return Choice(best, f"K = {best}: {rates[best]:.0f} tok/s expected, {other}")

    def observe(self, record: RoundRecord) -> None:
        self.costs.observe(record)
        self._count_loss(record)
        self._note_text(record)
        if not record.draft_tokens:
            return
        for values in (self._hits, self._made, self._trials, self._ran, self._rounds_of):
            values[:] = [value * FORGET for value in values]
        steps = forwards(record)
        asked = [row for row in record.rows if not row.by_text]
        for j in range(1, min(record.draft_tokens, self.largest) + 1):
            self._rounds_of[j] += 1
            self._ran[j] += steps >= j
            for row in asked:
                self._trials[j] += 1
                self._made[j] += len(row.proposals) >= j
                self._hits[j] += row.accepted >= j

    def _note_text(self, record: RoundRecord) -> None:
        """What rows proposed without the model, and do whatever K is."""
        texts = [row for row in record.rows if row.by_text]
        seen = (
            len(record.rows),
            len(texts),
            sum(len(row.proposals) for row in texts),
            sum(row.accepted for row in texts),
        )
        self._text = [FORGET * old + new for old, new in zip(self._text, seen, strict=True)]

    def _count_loss(self, record: RoundRecord) -> None:
        """What a trial took longer than the best K would have for as many tokens."""
        seconds = record.seconds.total - record.seconds.prefill
        tokens = sum(len(row.committed) for row in record.rows)
        self._seconds += seconds
        if self._trying and self._best_pace:
            self._lost += max(0.0, seconds - tokens / self._best_pace)
        elif not self._trying and self._rounds <= len(FIRST) and seconds:
            self._best_pace = tokens / seconds

    def survival(self, j: int) -> float:
        """s_j: chance that the first j proposals of a row are all accepted."""
        # where nothing was tried, the last known step is assumed to repeat itself
        if self._trials[j] >= 1.0:
            return (self._hits[j] + 0.5) / (self._trials[j] + 1.0)
        if j == 1:
            return 0.5
        before = self.survival(j - 2) if j > 2 else 1.0
        last = self.survival(j - 1)
        return last * (last / before if before else 0.0)

    def _share(self, counts: list[float], of: list[float], j: int) -> float:
        """Of the rounds with K ≥ j, or their rows: in how many proposal j was made."""
        return (counts[j] + 1.0) / (of[j] + 1.0)

    def _rate(self, k: int, rows: int) -> float:
        asked, _, gained = self._by_text()
        tokens = 1.0 + gained + asked * sum(self.survival(j) for j in range(1, k + 1))
        return rows * tokens / self._round_seconds(k, rows)

    def _by_text(self) -> tuple[float, float, float]:
        """A row's share of rounds in which the model is asked, the text that it proposes a
        round, and what of that is accepted."""
        rows, texts, proposed, accepted = self._text
        if not rows:
            return 1.0, 0.0, 0.0
        return 1.0 - texts / rows, proposed / rows, accepted / rows

    def _round_seconds(self, k: int, rows: int) -> float:
        made = sum(self._share(self._made, self._trials, j) for j in range(1, k + 1))
        steps = sum(self._share(self._ran, self._rounds_of, j) for j in range(1, k + 1))
        asked, text, _ = self._by_text()
        return self.costs.round(rows, text + asked * made, steps=steps)

    def _next_trial(self, best: int) -> int:
        """Neighbours of the best K and the far end, in turn."""
        others = [best - 1, best + 1, 0 if best > 1 else min(4, self.largest)]
        known = [k for k in others if 0 <= k <= self.largest and k != best]
        return known[self._trial % len(known)]
