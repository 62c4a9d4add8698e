"""Watching a stream of records for breakpoints.

What a breakpoint needs of the past (which invariant was broken before, the end of a
row's text, the oracle's answers) is kept here, for every lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from engine.microscope.breakpoints import INVARIANTS, Breakpoint, Hit, hits_of_round
from engine.records.match import Match, OracleFold
from engine.records.row import RowRound
from engine.records.schema import ChangeRecord, OracleRecord, Record, RoundRecord, RunHeader
from engine.records.violation import Violation


class Watch:
    """Breakpoints over the records of one source, as they come.

    The list of breakpoints may be changed at any time and from any thread: it is one
    tuple, replaced as a whole.
    """

    def __init__(self, points: Iterable[Breakpoint] = ()) -> None:
        self.points = tuple(points)
        self.hits: list[Hit] = []
        """All that applied, in order; only ever added to."""
        self._lanes: dict[int, _Lane] = {}
        self._oracle = OracleFold()

    def __call__(self, record: Record) -> bool:
        """Add a record. Returns whether a breakpoint applies, so that the run is to be held."""
        found = list(self._find(record))
        self.hits += found
        return bool(found)

    def _find(self, record: Record) -> Iterator[Hit]:
        if isinstance(record, RunHeader):
            lane = self._lanes[record.lane] = _Lane(self._oracle)
            lane.match.fold.join(record.prompts)
        elif isinstance(record, ChangeRecord):
            if record.lane in self._lanes:
                self._lanes[record.lane].match.fold.join(record.prompts)
        elif isinstance(record, RoundRecord):
            lane = self._lanes.setdefault(record.lane, _Lane(self._oracle))
            lane.add(record)
            yield from self._in_round(record, lane)
            yield from self._diverged(record.lane, lane)
        elif isinstance(record, OracleRecord):
            rows = self._oracle.add(record)
            for number, lane in self._lanes.items():
                lane.match.check(rows)
                yield from self._diverged(number, lane)

    def _in_round(self, record: RoundRecord, lane: _Lane) -> Iterator[Hit]:
        new = lane.newly_broken(record)
        texts = {row.row: lane.text(row) for row in record.rows}
        for point in self.points:
            yield from hits_of_round(point, record)
            hit = partial(Hit, breakpoint=point, lane=record.lane, round=record.round)
            if point.kind == "invariant" or point.kind in INVARIANTS:
                for broken in new:
                    if point.kind in ("invariant", broken.invariant) and (
                        point.row in (None, broken.row)
                    ):
                        yield hit(row=broken.row, violation=broken)
            elif point.kind == "text":
                for row, (before, added) in texts.items():
                    tail = before[-(len(point.text) - 1) :] if len(point.text) > 1 else ""
                    if point.row in (None, row) and point.text in tail + added:
                        yield hit(row=row)

    def _diverged(self, number: int, lane: _Lane) -> Iterator[Hit]:
        new = lane.newly_diverged()
        for point in self.points:
            if point.kind == "diverge":
                for row in new:
                    if point.row in (None, row):
                        yield Hit(
                            breakpoint=point,
                            lane=number,
                            round=lane.match.fold.round,
                            row=row,
                            divergence=lane.match.divergences[row].divergence,
                        )


TAIL = 4096
"""Characters of a row's text that are kept to find one that spans rounds."""


class _Lane:
    """What the records of one run said so far."""

    def __init__(self, oracle: OracleFold) -> None:
        self.match = Match(oracle)
        self._broken: set[tuple[str, int | None]] = set()
        self._texts: dict[int, str] = {}
        self._diverged: set[int] = set()

    def add(self, record: RoundRecord) -> None:
        for row in self.match.add(record):
            self._diverged.discard(row)
            self._texts.pop(row, None)

    def newly_broken(self, record: RoundRecord) -> list[Violation]:
        """What was broken in this round for the first time."""
        new = []
        for violation in record.violations:
            key = (violation.invariant, violation.row)
            if key not in self._broken:
                self._broken.add(key)
                new.append(violation)
        return new

    def text(self, row: RowRound) -> tuple[str, str]:
        """The end of a row's text before this round, and what the round added."""
        before = self._texts.get(row.row, "")
        self._texts[row.row] = (before + row.text)[-TAIL:]
        return before, row.text

    def newly_diverged(self) -> list[int]:
        """The rows that differ from the oracle since the last call."""
        new = sorted(self.match.divergences.keys() - self._diverged)
        self._diverged |= self.match.divergences.keys()
        return new
