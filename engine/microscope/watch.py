"""Watching a stream of records for breakpoints.

What a breakpoint needs of the past (which invariant was broken before, the end of a
row's text, the oracle's tokens) is kept here, for every lane.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from engine.microscope.breakpoints import INVARIANTS, Breakpoint, Hit, of_round
from engine.records.schema import (
    ChangeRecord,
    OracleRecord,
    Prompt,
    Record,
    RoundRecord,
    RowRound,
    RunHeader,
)


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
        self._oracle: dict[int, _Answer] = defaultdict(_Answer)

    def __call__(self, record: Record) -> bool:
        """Take in a record. Whether a breakpoint applies, so that the run is to be held."""
        found = list(self._find(record))
        self.hits += found
        return bool(found)

    def _find(self, record: Record) -> Iterator[Hit]:
        if isinstance(record, RunHeader):
            lengths = {prompt.index: len(prompt.ids) for prompt in record.prompts}
            self._lanes[record.lane] = _Lane(lengths)
        elif isinstance(record, ChangeRecord):
            if record.lane in self._lanes:
                self._lanes[record.lane].join(record.prompts)
        elif isinstance(record, RoundRecord):
            lane = self._lanes.setdefault(record.lane, _Lane({}))
            lane.add(record)
            yield from self._in_round(record, lane)
            parted = lane.parted(self._oracle, (row.row for row in record.rows))
            yield from self._diverged(record.lane, lane, parted)
        elif isinstance(record, OracleRecord):
            for row in record.rows:
                answer = self._oracle[row.row]
                del answer.output[row.first :]
                answer.output += row.output_ids
                answer.ended = row.finish_reason in ("eos", "context")  # a budget may grow
            for number, lane in self._lanes.items():
                parted = lane.parted(self._oracle, (row.row for row in record.rows))
                yield from self._diverged(number, lane, parted)

    def _in_round(self, record: RoundRecord, lane: _Lane) -> Iterator[Hit]:
        new = lane.newly_broken(record)
        texts = {row.row: lane.text(row) for row in record.rows}
        for point in self.points:
            for row, why in of_round(point, record):
                yield Hit(point, record.lane, record.round, row, why)
            if point.kind == "invariant" or point.kind in INVARIANTS:
                for name, row, why in new:
                    if point.kind in ("invariant", name) and point.row in (None, row):
                        yield Hit(point, record.lane, record.round, row, f"{name}: {why}")
            elif point.kind == "text":
                for row, (before, added) in texts.items():
                    tail = before[-(len(point.text) - 1) :] if len(point.text) > 1 else ""
                    if point.row in (None, row) and point.text in tail + added:
                        yield Hit(point, record.lane, record.round, row, "the text appeared")

    def _diverged(self, number: int, lane: _Lane, parted: list[tuple[int, str]]) -> Iterator[Hit]:
        for point in self.points:
            if point.kind == "diverge":
                for row, why in parted:
                    if point.row in (None, row):
                        yield Hit(point, number, lane.round, row, why)


@dataclass
class _Answer:
    """What is known of the oracle's answer to one prompt."""

    output: list[int] = field(default_factory=list)
    ended: bool = False


TAIL = 4096
"""Characters of a row's text that are kept to find one that spans rounds."""


class _Lane:
    """What the records of one run said so far."""

    def __init__(self, prompts: dict[int, int]) -> None:
        self.round = 0
        self._prompts = prompts
        self._broken: set[tuple[str, int | None]] = set()
        self._texts: dict[int, str] = {}
        self._outputs: dict[int, list[int]] = defaultdict(list)
        self._ended: set[int] = set()
        self._agreed: dict[int, int] = {}
        self._parted: set[int] = set()

    def join(self, prompts: Iterable[Prompt]) -> None:
        """Prompts that joined the queue."""
        self._prompts |= {prompt.index: len(prompt.ids) for prompt in prompts}

    def add(self, record: RoundRecord) -> None:
        self.round = record.round
        for row in record.rows:
            output = self._outputs[row.row]
            start = row.before - self._prompts.get(row.row, row.before - len(output))
            if row.before and start < len(output):  # the row went back
                del output[max(0, start) :]
                self._parted.discard(row.row)
                self._agreed[row.row] = 0
                self._texts.pop(row.row, None)
            output += row.committed
            self._ended.discard(row.row)
            if row.finish_reason is not None:
                self._ended.add(row.row)

    def newly_broken(self, record: RoundRecord) -> list[tuple[str, int | None, str]]:
        """What was broken in this round for the first time: invariant, row, why."""
        new: list[tuple[str, int | None, str]] = []
        for violation in record.violations:
            key = (violation.invariant, violation.row)
            if key not in self._broken:
                self._broken.add(key)
                new.append((violation.invariant, violation.row, violation.message))
        return new

    def text(self, row: RowRound) -> tuple[str, str]:
        """The end of a row's text before this round, and what the round added."""
        before = self._texts.get(row.row, "")
        self._texts[row.row] = (before + row.text)[-TAIL:]
        return before, row.text

    def parted(self, oracle: dict[int, _Answer], rows: Iterable[int]) -> list[tuple[int, str]]:
        """The rows that have just left the oracle, and how."""
        found = []
        for row in rows:
            if row in self._parted or row not in oracle or row not in self._outputs:
                continue
            why = self._difference(row, self._outputs[row], oracle[row])
            if why:
                self._parted.add(row)
                found.append((row, why))
        return found

    def _difference(self, row: int, output: list[int], answer: _Answer) -> str:
        shared = min(len(output), len(answer.output))
        place = self._agreed.get(row, 0)
        while place < shared and output[place] == answer.output[place]:
            place += 1
        self._agreed[row] = place
        if place < shared:
            wrong, right = output[place], answer.output[place]
            return f"new token {place} is {wrong}, the oracle's is {right}"
        if len(output) > shared and answer.ended:
            return "it goes on where the oracle ended"
        if len(answer.output) > shared and row in self._ended:
            return "it ended before the oracle did"
        return ""
