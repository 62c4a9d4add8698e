"""The oracle beside a comparison: it keeps up with the lanes, and no more than that.

Each row's answer is decoded alone, token by token, as far as some lane has come; what is
new is sent in records, so that a screen or a trace can mark the first wrong token of a
row in the very tick in which it appears.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq

from engine.config.settings import Settings
from engine.evaluation.oracle import Oracle
from engine.records.divergence import Answer
from engine.records.schema import OracleRecord, OracleRow, Prompt

AT_ONCE = 8
"""Rows of one measurement of the tolerance: those that are answered first."""


class LiveOracle:
    """The answers to the prompts, as far as they are needed.

    Args:
        settings: of any lane: budget, and in strict mode B and K.
        measure: tell the tolerance too.
    """

    def __init__(
        self, oracle: Oracle, prompts: Seq[Prompt], settings: Settings, *, measure: bool = True
    ) -> None:
        self._oracle = oracle
        self._prompts = {prompt.index: prompt for prompt in prompts}
        self._settings = settings
        self._growing: dict[int, Iterator[Answer]] = {}
        self._answers: dict[int, Answer] = {}
        self._sent: dict[int, int] = {}
        self._ended: set[int] = set()
        self._known: set[int] = set()
        self._measured = not measure

    def join(self, prompts: Seq[Prompt]) -> None:
        """Prompts that there are by now."""
        self._prompts = {prompt.index: prompt for prompt in prompts}

    def reach(self, lengths: Mapping[int, int]) -> Iterator[OracleRecord]:
        """Grow each row's answer to one token more than this, and tell what is new.

        Where acceptance is forced, there is nothing to compare.
        """
        if self._settings.force_accept is not None:
            return
        rows = []
        for row, length in sorted(lengths.items()):
            self._grow(row, length + 1)
            piece = self._unsent(row)
            if piece is not None:
                rows.append(piece)
        if rows:
            yield self._record(rows, None)

    def rest(self) -> Iterator[OracleRecord]:
        """The ends of the answers that were begun, a record a row, and the tolerance.

        It is measured when the lanes are done: meanwhile they would have to wait for it.
        """
        for row in sorted(self._answers):
            if row not in self._ended:
                self._grow(row, None)
                piece = self._unsent(row)
                if piece is not None:
                    yield self._record([piece], None)
        tolerance = self._tolerance()
        if tolerance is not None:
            yield self._record([], tolerance)

    def _grow(self, row: int, length: int | None) -> None:
        answer = self._answers.get(row)
        while row not in self._ended and (
            answer is None or length is None or len(answer.output_ids) < length
        ):
            if row not in self._growing:
                self._growing[row] = self._oracle.growing(
                    self._prompts[row], list(self._prompts.values()), self._settings
                )
            answer = self._answers[row] = next(self._growing[row])
            if answer.finish_reason:
                self._ended.add(row)
                del self._growing[row]

    def _unsent(self, row: int) -> OracleRow | None:
        """What has not been sent of a row yet."""
        answer = self._answers[row]
        sent = self._sent.get(row, -1)
        total = len(answer.output_ids)
        if sent == total and not answer.finish_reason:
            return None
        if sent > total:
            return None
        first = max(0, sent)
        # a finished answer is sent once: its mark lies beyond its last token
        self._sent[row] = total + 1 if answer.finish_reason else total
        return OracleRow(
            row=row,
            first=first,
            output_ids=answer.output_ids[first:],
            gaps=answer.gaps[first:],
            finish_reason=answer.finish_reason or None,
            error=answer.error,
        )

    def _tolerance(self) -> float | None:
        """Measured on the first of the answers; strict needs none."""
        ready = [self._prompts[row] for row in sorted(self._ended) if self._answers[row].output_ids]
        if self._settings.strict or not ready:
            return None
        return self._oracle.tolerance(ready[:AT_ONCE], self._settings)

    def _record(self, rows: list[OracleRow], tolerance: float | None) -> OracleRecord:
        new = {token for row in rows for token in row.output_ids} - self._known
        self._known |= new
        pieces = {token: self._oracle.pair.tokenizer.piece(token) for token in sorted(new)}
        return OracleRecord(rows=tuple(rows), tolerance=tolerance, pieces=pieces)
