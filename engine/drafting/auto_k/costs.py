"""What a round costs on this machine, learned from the rounds themselves.

Used where a choice is made by cost: K under `--draft-tokens auto`, and whether a group
of EXSPEC pays. Times on a shared machine jump, so medians are kept, not means.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from engine.drafting.auto_k.fit import Fit
from engine.drafting.auto_k.price import Price
from engine.models.block_cost import load
from engine.records.schema import RoundRecord

KEEP = 7
"""Measurements kept of each kind: the median of so many is robust, and follows drift."""

USUAL = 2 * KEEP
"""A draft that had to catch up with more tokens was not asked for long: that is no measure of
what asking it costs."""


class Costs:
    """Seconds of each part of a round, by how much was fed."""

    def __init__(self) -> None:
        self._fit = Fit()
        self._plain: dict[int, deque[float]] = {}
        self._draft_step: deque[float] = deque(maxlen=KEEP)
        self._overhead: deque[float] = deque(maxlen=KEEP)
        self._realign: deque[float] = deque(maxlen=KEEP)
        self._seconds: deque[float] = deque(maxlen=KEEP)
        self._kept: deque[tuple[int, int]] = deque(maxlen=4 * KEEP)
        self._more: deque[float] = deque(maxlen=KEEP)
        self.skipped = False
        """Whether the draft model was not asked in this round, whatever K is."""
        self.caught_up = 0
        """Tokens that the draft had to catch up with in this round."""
        self.wanted = 0
        """Rows of this round whose tokens count (`engine.drafting.auto_k.stragglers`); 0: as many
        as lately."""

    def observe(self, record: RoundRecord) -> None:
        """Learn from a finished round. The first ones of a run also pay for warming up."""
        seconds = record.seconds
        rows = len(record.rows)
        counts = [len(row.draft_token_ids) + 1 for row in record.rows]
        plain = max(counts) == 1
        self._fit.observe(load(counts), seconds.verify, plain=plain)
        if plain:
            self._plain.setdefault(rows, deque(maxlen=KEEP)).append(seconds.verify)
        usual = not self.skipped and (self.caught_up <= USUAL or not self._draft_step)
        if record.draft_tokens and usual:
            steps = forwards(record)
            self._draft_step.append(seconds.draft / steps)
        self.skipped = False
        self._overhead.append(seconds.accept + seconds.schedule)
        spent = seconds.total - seconds.prefill
        if spent > 0:
            self._seconds.append(spent)
            self._more.append(load(counts) - load([1] * rows))
            self._kept.append((sum(len(row.committed) for row in record.rows), rows))
        if record.kind != "grouped":
            self._realign.append(seconds.realign)

    @property
    def known(self) -> bool:
        """Whether the slope of the verification's cost can be told."""
        return self._fit.kinds >= 2 and bool(self._draft_step)

    @property
    def per_row(self) -> float:
        """Tokens that a row commits in a round, lately; 1 until that is known."""
        rows = sum(rows for _, rows in self._kept)
        return sum(kept for kept, _ in self._kept) / rows if rows else 1.0

    @property
    def pace(self) -> float:
        """Tokens a second that count, at the pace of the latest rounds; 0 until it is known."""
        if not self._seconds:
            return 0.0
        return (self.wanted or self._kept[-1][1]) * self.per_row / median(self._seconds)

    def price(self, otherwise: float) -> Price:
        """What a draft token has to be worth.

        Args:
            otherwise: chance of acceptance that is asked for until costs are known.
        """
        if self._fit.kinds < 3 or not self._seconds:
            return Price(token=otherwise, rows=max(1, self.wanted))
        slope = self._fit.slope
        rest = max(median(self._seconds) - slope * sum(self._more) / len(self._more), 0.0)
        rows = self.wanted or self._kept[-1][1]
        return Price(token=slope, row=rest / rows, rows=rows)

    def draft_tokens_worth(self) -> float:
        """Tokens that are made in the time of a draft's forward; 0 until that is known."""
        return _middle(self._draft_step) * self.pace

    def round(self, rows: int, draft_tokens: float, *, steps: float, padded: bool = False) -> float:
        """Seconds of a round.

        Args:
            rows: rows that take part.
            draft_tokens: draft tokens per row, on average.
            steps: forwards of the draft (its K, or fewer on average).
            padded: whether the rows have to be realigned.
        """
        # a block that is not ragged is cheaper than the line through ragged ones says
        plain = self._plain.get(rows) if not draft_tokens else None
        each = math.ceil(draft_tokens)
        feeding = round(rows * draft_tokens / each) if each else 0
        block = [each + 1] * feeding + [1] * (rows - feeding)
        verify = median(plain) if plain else self._fit.seconds(load(block))
        seconds = verify + _middle(self._overhead)
        seconds += steps * _middle(self._draft_step)
        return seconds + (_middle(self._realign) if padded else 0.0)


def forwards(record: RoundRecord) -> int:
    """How often the draft ran in a round with K > 0: once at least, and text takes none."""
    made = (len(row.draft_token_ids) for row in record.rows if not row.by_text)
    return max(1, max(made, default=0))


def _middle(times: deque[float]) -> float:
    return median(times) if times else 0.0
