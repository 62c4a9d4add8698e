"""What a round costs on this machine, learned from the rounds themselves.

Used where a choice is made by cost: K under `--draft-tokens auto`, and whether a group
of EXSPEC pays. Times on a shared machine jump, so medians are kept, not means.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from engine.records import RoundRecord

KEEP = 7
"""Measurements kept of each kind: the median of so many is robust, and follows drift."""


class Costs:
    """Seconds of each part of a round, by how much was fed."""

    def __init__(self) -> None:
        self._verify: dict[int, deque[float]] = {}
        self._plain: dict[int, deque[float]] = {}
        self._draft_step: deque[float] = deque(maxlen=KEEP)
        self._overhead: deque[float] = deque(maxlen=KEEP)
        self._realign: deque[float] = deque(maxlen=KEEP)
        self._pace: deque[float] = deque(maxlen=4 * KEEP)

    def observe(self, record: RoundRecord) -> None:
        """Learn from a finished round. The first ones of a run also pay for warming up."""
        seconds = record.seconds
        fed = sum(len(row.proposals) + 1 for row in record.rows)
        self._verify.setdefault(fed, deque(maxlen=KEEP)).append(seconds.verify)
        if fed == len(record.rows):
            self._plain.setdefault(fed, deque(maxlen=KEEP)).append(seconds.verify)
        while len(self._verify) > 4 * KEEP:  # the oldest kind has drifted furthest
            self._verify.pop(next(iter(self._verify)))
        if record.draft_tokens:
            steps = forwards(record)
            self._draft_step.append(seconds.draft / steps)
        self._overhead.append(seconds.accept + seconds.schedule)
        spent = seconds.total - seconds.prefill
        if spent > 0:
            self._pace.append(sum(len(row.committed) for row in record.rows) / spent)
        if record.kind != "grouped":
            self._realign.append(seconds.realign)

    @property
    def known(self) -> bool:
        """Whether the slope of the verification's cost can be told."""
        return len(self._verify) >= 2 and bool(self._draft_step)

    def least_chance(self, otherwise: float) -> float:
        """Chance of acceptance at which one more proposal pays: the seconds that it costs
        times the tokens that a second makes now. `otherwise` until that is known."""
        if len(self._verify) < 3 or not self._pace:
            return otherwise
        return min(0.9, max(0.02, self._line()[1] * median(self._pace)))

    def draft_tokens_worth(self) -> float:
        """Tokens that are made in the time of a draft's forward now; 0 until that is known."""
        if not self._draft_step or not self._pace:
            return 0.0
        return median(self._draft_step) * median(self._pace)

    def verify(self, fed: float) -> float:
        """Seconds to verify so many tokens."""
        (mean_x, mean_y), slope = self._line()
        return mean_y + slope * (fed - mean_x)

    def _line(self) -> tuple[tuple[float, float], float]:
        """A line through the medians, weighted by how often each was measured, and never
        falling: a point on it, and its slope in seconds a token."""
        points = [(x, median(times), len(times)) for x, times in self._verify.items()]
        weight = sum(n for *_, n in points)
        mean_x = sum(x * n for x, _, n in points) / weight
        mean_y = sum(y * n for _, y, n in points) / weight
        spread = sum(n * (x - mean_x) ** 2 for x, _, n in points)
        slope = 0.0
        if spread:
            slope = sum(n * (x - mean_x) * (y - mean_y) for x, y, n in points) / spread
        return (mean_x, mean_y), min(max(slope, 0.0), mean_y / mean_x)

    def round(self, rows: int, draft_tokens: float, *, steps: float, padded: bool = False) -> float:
        """Seconds of a round.

        Args:
            rows: rows that take part.
            draft_tokens: proposals per row, on average.
            steps: forwards of the draft (its K, or fewer on average).
            padded: whether the rows have to be realigned.
        """
        # a block that is not ragged is cheaper than the line through ragged ones says
        plain = self._plain.get(rows) if not draft_tokens else None
        verify = median(plain) if plain else self.verify(rows * (1 + draft_tokens))
        seconds = verify + _middle(self._overhead)
        seconds += steps * _middle(self._draft_step)
        return seconds + (_middle(self._realign) if padded else 0.0)


def forwards(record: RoundRecord) -> int:
    """How often the draft ran in a round with K > 0: once at least, and text takes none."""
    made = (len(row.proposals) for row in record.rows if not row.by_text)
    return max(1, max(made, default=0))


def _middle(times: deque[float]) -> float:
    return median(times) if times else 0.0
