"""One run against the oracle: where each row first differs, and why, as the records come."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from engine.records.divergence import Answer, Divergence, first_divergence
from engine.records.fold import RowFold, RunFold
from engine.records.schema import OracleRecord, RoundRecord

AT_ITS_END = ("eos", "context")
"""Ends of an oracle's answer after which nothing may follow. A budget may still grow."""


class RowDivergence(NamedTuple):
    """The first difference of a row."""

    round: int
    """The round that committed the token, or ended the row."""
    divergence: Divergence


class AnswerFold:
    """The oracle's answer to one prompt, as far as it is known."""

    def __init__(self) -> None:
        self.output: list[int] = []
        self.gaps: list[float] = []
        self.finish_reason = ""
        self.error: str | None = None

    def answer(self, row: int) -> Answer:
        return Answer(
            index=row,
            output_ids=tuple(self.output),
            finish_reason=self.finish_reason,
            error=self.error,
            gaps=tuple(self.gaps),
        )


class OracleFold:
    """The oracle's answers, added up from its records."""

    def __init__(self) -> None:
        self.answers: dict[int, AnswerFold] = {}
        self.tolerance: float | None = None
        self.pieces: dict[int, str] = {}
        self.name = ""
        """Whose answers these are, where not the oracle's own."""

    def taken_back(self, record: OracleRecord) -> dict[int, int]:
        """By row, the place from which on a record replaces what was said before."""
        known = {row: len(answer.output) for row, answer in self.answers.items()}
        return {row.row: row.first for row in record.rows if row.first < known.get(row.row, 0)}

    def add(self, record: OracleRecord) -> list[int]:
        """Add a record. Returns the rows that it is about."""
        self.pieces.update(record.pieces)
        self.name = record.name
        if record.tolerance is not None:
            self.tolerance = record.tolerance
        for row in record.rows:
            answer = self.answers.setdefault(row.row, AnswerFold())
            del answer.output[row.first :], answer.gaps[row.first :]
            answer.output.extend(row.output_ids)
            answer.gaps.extend(row.gaps)
            answer.finish_reason = row.finish_reason or ""
            answer.error = row.error
        return [row.row for row in record.rows]


class Match:
    """How far the rows of one run agree with the oracle."""

    def __init__(self, oracle: OracleFold) -> None:
        self.oracle = oracle
        self.fold = RunFold()
        self.divergences: dict[int, RowDivergence] = {}
        self._agreed: dict[int, int] = {}
        self._tolerance_used: float | None = None

    def add(self, record: RoundRecord) -> set[int]:
        """Add a round of the run. Returns the rows that went back before it."""
        gone = self.fold.add(record)
        for row in gone | record.back.keys():
            self._agreed.pop(row, None)
            self.divergences.pop(row, None)
        self.check(row.row for row in record.rows)
        return gone

    def check(self, rows: Iterable[int]) -> None:
        """Compare these rows as far as both sides go."""
        for index in rows:
            row, answer = self.fold.rows.get(index), self.oracle.answers.get(index)
            if row is None or answer is None or index in self.divergences:
                continue
            place = self._agreed.get(index, 0)
            shared = min(len(row.output), len(answer.output))
            while place < shared and row.output[place] == answer.output[place]:
                place += 1
            self._agreed[index] = place
            if place < shared or self._one_ended(row, answer, place):
                self._part(index, row, answer, place)

    def _one_ended(self, row: RowFold, answer: AnswerFold, place: int) -> bool:
        """Whether one of the two has ended here, and the other goes on."""
        if place < len(row.output):
            ended = answer.finish_reason
            return bool(ended) if self.oracle.name else ended in AT_ITS_END
        return row.finish_reason is not None and place < len(answer.output)

    def _part(self, index: int, row: RowFold, answer: AnswerFold, place: int) -> None:
        tolerance = self.oracle.tolerance
        limit = math.inf if tolerance is None else tolerance
        divergence = first_divergence(row, answer.answer(index), limit, complete=False)
        if divergence is None:
            return
        at = row.rounds[place] if place < len(row.rounds) else row.last_round or 0
        self.divergences[index] = RowDivergence(at, divergence)

    def measure_went_back(self, row: int, place: int) -> None:
        """The oracle's answer is another one from this place on: compare it from there again.

        Only the measure of a fork goes back, with the run whose tokens it is.
        """
        self._agreed[row] = min(place, self._agreed.get(row, 0))
        entry = self.divergences.get(row)
        if entry is not None and entry.divergence.position >= place:
            del self.divergences[row]

    def judge_again(self) -> None:
        """The tolerance is measured: rounding can now be told from what nothing explains."""
        if self.oracle.tolerance == self._tolerance_used:
            return
        self._tolerance_used = self.oracle.tolerance
        for row, entry in list(self.divergences.items()):
            if entry.divergence.cause == "numeric":
                del self.divergences[row]
                self.check([row])

    def divergence_at(self, row: int, number: int) -> RowDivergence | None:
        """The row's first difference, if it lies in the rounds up to `number`."""
        entry = self.divergences.get(row)
        return entry if entry is not None and entry.round <= number else None

    def diverged(self, number: int) -> list[RowDivergence]:
        """The differences up to this round, the earliest first."""
        found = [entry for entry in self.divergences.values() if entry.round <= number]
        return sorted(found, key=lambda entry: (entry.round, entry.divergence.index))
