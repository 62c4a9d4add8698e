"""`--draft-tokens auto`: the K that makes most tokens a second, found by trying."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Literal

from engine.config.settings import LARGEST_AUTO
from engine.records.schema import DraftChoice, RoundRecord
from engine.rounds.draft_policy import Choice

THRESHOLD = 0.3
"""Under `auto`, a row stops drafting before a token if the chance that it and all before it are
accepted is smaller than this."""

STEPS = (0, 2, 4, LARGEST_AUTO)
"""Values of K. A trial takes a neighbour of the best one."""

FIRST = 12
"""Rounds of one row with K = 2 that are measured first; a batch of several needs fewer rounds."""

KEEP = 48
"""Latest rounds of each K whose accepted tokens count."""

RECENT = 9
"""Latest rounds of each K whose seconds count: their median, for times jump on a shared machine."""

WAIT = (16, 128)
"""Rounds between trials: at first, and at most. The wait doubles with each trial that changes
nothing. A neighbour that was never tried is tried after a quarter of the first wait."""

INSTANT = 1e-9
"""Seconds that a round takes at least: a clock that stands still measures none."""


@dataclass
class Rounds:
    """What rounds of one K made of each row, and how long they took."""

    accepted: deque[float] = field(default_factory=lambda: deque(maxlen=KEEP))
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def pace(self, free: float) -> float:
        """Tokens per row and second; 0 before the first round.

        Args:
            free: tokens per row and round that are accepted of text, which costs no forward.
        """
        if not self.seconds:
            return 0.0
        tokens = 1.0 + free + fmean(self.accepted)
        return tokens / max(median(self.seconds), INSTANT)


class AutoPolicy:
    """Takes the K whose latest rounds made most tokens a second, and now and then tries another.

    How far each row goes within K, the draft decides by `THRESHOLD`. What pays depends on how
    many rows take part: batches of 1, 2 to 3, 4 to 7, … rows are measured each for themselves.

    Args:
        free_text: whether text is drafted where K is 0 too (`engine.drafting.hybrid`).
    """

    def __init__(self, *, free_text: bool = False) -> None:
        self.largest = STEPS[-1]
        self._free_text = free_text
        self._sizes: dict[int, Tuner] = {}

    def choose(self, rows: int) -> Choice:
        return self._of(rows).choose()

    def observe(self, record: RoundRecord) -> None:
        self._of(len(record.rows)).observe(record)

    def _of(self, rows: int) -> Tuner:
        return self._sizes.setdefault(rows.bit_length(), Tuner(free_text=self._free_text))


class Tuner:
    """The K of batches of about one size."""

    def __init__(self, *, free_text: bool) -> None:
        self._free_text = free_text
        # by whether the model drafts as well: with it, only text that is all but sure is taken
        self._text: dict[bool, deque[float]] = {
            asked: deque(maxlen=KEEP) for asked in (True, False)
        }
        self._rounds_of = {k: Rounds() for k in STEPS}
        self._rounds = self._drafted = 0
        self._best = 0
        self._wait, self._since = WAIT[0], 0
        self._upwards = True

    def choose(self) -> Choice:
        self._rounds += 1
        if self._rounds <= 4 or self._drafted < FIRST:
            return self._choice(0 if self._rounds in (1, 3) else 2, "measuring")
        paces = self._paces()
        best = max(STEPS, key=paces.__getitem__)
        if best != self._best:
            self._best, self._wait, self._since = best, WAIT[0], 0
        self._since += 1
        trial = self._neighbour()
        if trial is None:
            return self._choice(best, "fastest")
        return self._choice(trial, "trial")

    def _neighbour(self) -> int | None:
        """The K that is tried in this round, if one is."""
        place = STEPS.index(self._best)
        above, below = STEPS[place + 1 : place + 2], STEPS[max(0, place - 1) : place]
        if above and not self._rounds_of[above[0]].seconds and place and self._since > WAIT[0] // 4:
            return above[0]
        if self._since <= self._wait:
            return None
        self._wait, self._since = min(2 * self._wait, WAIT[1]), 0
        self._upwards = not self._upwards
        return ((above or below) if self._upwards else (below or above))[0]

    def _choice(self, k: int, why: Literal["measuring", "trial", "fastest"]) -> Choice:
        paces = {step: round(pace, 3) for step, pace in self._paces().items() if pace}
        return Choice(k, DraftChoice(reason=why, paces=paces))

    def _paces(self) -> dict[int, float]:
        free = {asked: fmean(text) if text else 0.0 for asked, text in self._text.items()}
        return {k: rounds.pace(free[k > 0]) for k, rounds in self._rounds_of.items()}

    def observe(self, record: RoundRecord) -> None:
        k, count = record.draft_tokens, len(record.rows)
        self._drafted += count * (k > 0)
        accepted = sum(row.accepted for row in record.rows)
        if self._free_text:
            text = sum(row.accepted for row in record.rows if row.by_text)
            self._text[k > 0].append(text / count)
            accepted -= text
        self._rounds_of[k].accepted.append(accepted / count)
        self._rounds_of[k].seconds.append(record.seconds.total - record.seconds.prefill)
