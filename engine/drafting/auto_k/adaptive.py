"""The K that pays most."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence as Seq
from dataclasses import replace

from engine.config.settings import LARGEST_AUTO
from engine.drafting.auto_k.costs import Costs, forwards
from engine.drafting.auto_k.stragglers import holding_up
from engine.records.schema import RoundRecord
from engine.rounds.draft_policy import Choice
from engine.rounds.sequence import Sequence

FIRST = (0, 2, 0, 2)
"""K of the first rounds: what a round and a draft token cost, and a first idea of acceptance."""

TRIALS = 12
"""First draft tokens of the draft that make this first idea worth believing: a batch of few rows
begins with more such rounds, up to as many."""

REGRET = 0.01
"""Share of the time that may be lost to trying other values of K."""

FORGET = 0.99
"""How fast old acceptance fades, a round."""

INSTANT = 1e-9
"""Seconds that a round takes at least: a clock that stands still measures none."""


class Auto(ABC):
    """What choosing by cost has in common: only rows that hold the others up draft.

    Attributes:
        hurries: whether that is so; some methods need all rows to draft alike.
    """

    hurries = True

    def __init__(self, costs: Costs, largest: int = LARGEST_AUTO) -> None:
        self.largest = largest
        self.costs = costs

    def choose(self, rows: Seq[Sequence], *, refilled: bool) -> Choice:
        remaining = [row.remaining for row in rows]
        every = refilled or not self.hurries
        late = [every or held for held in holding_up(remaining, self.costs.per_row)]
        wanted = frozenset(row.index for row, held in zip(rows, late, strict=True) if held)
        self.costs.wanted = len(wanted)
        choice = self.decide(len(rows), wanted)
        if len(wanted) == len(rows):
            return choice
        late_rows = "the late row" if len(wanted) == 1 else f"the {len(wanted)} late rows"
        return replace(choice, reason=f"{late_rows} only; {choice.reason}", rows=wanted)

    @abstractmethod
    def decide(self, rows: int, wanted: frozenset[int]) -> Choice:
        """K for a round of so many rows, of which some draft."""

    def observe(self, record: RoundRecord) -> None:
        self.costs.observe(record)


class Selective(Auto):
    """As many as are worth it, row by row: for drafts that know what each draft token is worth
    (lookup and n-grams). The draft itself leaves out what does not pay."""

    def decide(self, rows: int, wanted: frozenset[int]) -> Choice:
        price = self.costs.price(0.0)
        if not price.token:
            return Choice(self.largest, "measuring what a token costs")
        reason = f"draft tokens with a chance of {price.least:.0%} pay"
        return Choice(self.largest, reason)


class Adaptive(Auto):
    """K that maximises the expected tokens per second, 0 included.

    A row-round commits 1 + Σ_j s_j tokens, where s_j is the share of rows whose first j
    draft tokens were all made and accepted: a row may stop before its K
    (`engine.drafting.auto_k.confidence`).
    What the round costs is learned by `Costs`. Another K than
    the best is tried only while all such trials together have cost less than `REGRET` of
    the time, by the clock.
    """

    def __init__(self, costs: Costs, largest: int = LARGEST_AUTO) -> None:
        super().__init__(costs, largest)
        self._wanted: frozenset[int] = frozenset()
        self._hits = [0.0] * (largest + 1)
        self._trials = [0.0] * (largest + 1)
        self._made = [0.0] * (largest + 1)
        self._ran = [0.0] * (largest + 1)
        self._rounds_of = [0.0] * (largest + 1)
        # rows, those that drafted text, how much, accepted; without and with the model
        self._text = [[0.0] * 4, [0.0] * 4]
        self._rounds = 0
        self._trial = 0
        self._trying = False
        self._best_pace = 0.0
        self._seconds = self._lost = 0.0

    def decide(self, rows: int, wanted: frozenset[int]) -> Choice:
        self._rounds += 1
        self._wanted = wanted
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
        asked = record.draft_tokens > 0 and not self.costs.skipped
        super().observe(record)
        self._count_loss(record)
        self._note_text(record, asked)
        if asked:
            self._note_model(record)

    def _note_model(self, record: RoundRecord) -> None:
        """How far the model's draft tokens went, and came true."""
        for values in (self._hits, self._made, self._trials, self._ran, self._rounds_of):
            values[:] = [value * FORGET for value in values]
        steps = forwards(record)
        asked = [row for row in record.rows if row.row in self._wanted and not row.by_text]
        for j in range(1, min(record.draft_tokens, self.largest) + 1):
            self._rounds_of[j] += 1
            self._ran[j] += steps >= j
            for row in asked:
                self._trials[j] += 1
                self._made[j] += len(row.draft_token_ids) >= j
                self._hits[j] += row.accepted >= j

    def _note_text(self, record: RoundRecord, asked: bool) -> None:
        """What rows drafted without the model: the more where it is not asked at all."""
        texts = [row for row in record.rows if row.by_text]
        seen = (
            len(self._wanted),
            len(texts),
            sum(len(row.draft_token_ids) for row in texts),
            sum(row.accepted for row in texts),
        )
        was = self._text[asked]
        self._text[asked] = [FORGET * old + new for old, new in zip(was, seen, strict=True)]

    def _count_loss(self, record: RoundRecord) -> None:
        """What a trial took longer than the best K would have for as many tokens."""
        seconds = record.seconds.total - record.seconds.prefill
        tokens = sum(len(row.committed) for row in record.rows if row.row in self._wanted)
        self._seconds += seconds
        if self._trying and self._best_pace:
            self._lost += max(0.0, seconds - tokens / self._best_pace)
        elif not self._trying and self._rounds <= len(FIRST) and seconds:
            self._best_pace = tokens / seconds

    def survival(self, j: int) -> float:
        """s_j: chance that the first j draft tokens of a row are all accepted."""
        # where nothing was tried, the last known step is assumed to repeat itself
        if self._trials[j] >= 1.0:
            return (self._hits[j] + 0.5) / (self._trials[j] + 1.0)
        if j == 1:
            return 0.5
        before = self.survival(j - 2) if j > 2 else 1.0
        last = self.survival(j - 1)
        return last * (last / before if before else 0.0)

    def _share(self, counts: list[float], of: list[float], j: int) -> float:
        """Of the rounds with K ≥ j, or their rows: in how many draft token j was made."""
        return (counts[j] + 1.0) / (of[j] + 1.0)

    def _rate(self, k: int, rows: int) -> float:
        asked, _, gained = self._by_text(k > 0)
        tokens = 1.0 + gained + asked * sum(self.survival(j) for j in range(1, k + 1))
        return len(self._wanted) * tokens / max(self._round_seconds(k, rows), INSTANT)

    def _by_text(self, model: bool) -> tuple[float, float, float]:
        """A row's share of rounds in which the model is asked, the text that it drafts a
        round, and what of that is accepted."""
        rows, texts, drafted, accepted = self._text[model]
        if not rows:
            return 1.0, 0.0, 0.0
        return 1.0 - texts / rows, drafted / rows, accepted / rows

    def _round_seconds(self, k: int, rows: int) -> float:
        made = sum(self._share(self._made, self._trials, j) for j in range(1, k + 1))
        steps = sum(self._share(self._ran, self._rounds_of, j) for j in range(1, k + 1))
        asked, text, _ = self._by_text(k > 0)
        share = len(self._wanted) / rows
        fed = share * (text + asked * made)
        return self.costs.round(rows, fed, steps=steps)

    def _next_trial(self, best: int) -> int:
        """Neighbours of the best K and the far end, in turn."""
        others = [best - 1, best + 1, 0 if best > 1 else min(4, self.largest)]
        known = [k for k in others if 0 <= k <= self.largest and k != best]
        return known[self._trial % len(known)]
