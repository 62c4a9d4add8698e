"""Recorded runs side by side: the records of one or more traces as one comparison.

One trace comes as it was recorded. Several are laid beside each other, a lane each,
level by round: a tick is over when every lane has shown its round. What the first one
wrote is the measure of the others (unless one of them recorded the oracle), so that the
first token of each row that differs can be marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from engine.config.errors import UserError
from engine.config.limits import LARGEST_LANES
from engine.records.schema import (
    LaneRecord,
    OracleRecord,
    OracleRow,
    Prompt,
    Record,
    RoundRecord,
    RunHeader,
    TickRecord,
)
from engine.records.trace import read_trace


def side_by_side(paths: Sequence[Path], notices: list[str]) -> Iterator[Record]:
    """The records of these traces as one stream.

    Args:
        notices: what could not be read is added here (see `read_trace`).

    Raises:
        UserError: a file is no trace, or there are too many lanes in all of them.
    """
    if len(paths) == 1:
        yield from read_trace(paths[0], notices)
        return
    names = names_of(paths)
    lanes: list[Iterator[LaneRecord]] = []
    oracle: list[OracleRecord] = []
    for path, name in zip(paths, names, strict=True):
        lanes += _lanes_of(path, name, oracle, notices)
    if len(lanes) > LARGEST_LANES:
        raise UserError(
            f"{len(lanes)} lanes in these traces; at most {LARGEST_LANES} fit side by side"
        )
    yield from _level(lanes, oracle, names[0])


def names_of(paths: Sequence[Path]) -> list[str]:
    """What the traces are called: their files' names, with the folders where two are alike."""
    names = [path.name for path in paths]
    return [str(path) if names.count(path.name) > 1 else path.name for path in paths]


def _lanes_of(
    path: Path, name: str, oracle: list[OracleRecord], notices: list[str]
) -> list[Iterator[LaneRecord]]:
    """The lanes of one trace. A trace of one lane is read as it is needed."""
    records = _noted(path, name, notices)
    first = next(records)
    if isinstance(first, RunHeader) and first.lanes == 1:
        return [
            (r for r in chain([first], records) if not isinstance(r, OracleRecord | TickRecord))
        ]
    lanes: dict[int, list[LaneRecord]] = {}
    found: list[OracleRecord] = []
    for record in chain([first], records):
        if isinstance(record, OracleRecord):
            found.append(record)
        elif isinstance(record, RunHeader):
            lanes[record.lane] = [record]  # a lane that began again: its last run counts
        elif not isinstance(record, TickRecord) and record.lane in lanes:
            lanes[record.lane].append(record)
    if not oracle:
        oracle += found
    return [iter(lanes[lane]) for lane in sorted(lanes)]


def _noted(path: Path, name: str, notices: list[str]) -> Iterator[Record]:
    """Records of a trace; what is wrong with it is reported with its name."""
    found: list[str] = []
    yield from read_trace(path, found)
    notices += [f"{name}: {notice}" for notice in found]


def _level(
    streams: Sequence[Iterator[LaneRecord]],
    oracle: Sequence[OracleRecord],
    name: str,
) -> Iterator[Record]:
    lanes = [_Lane(number, stream) for number, stream in enumerate(streams)]
    headers = [lane.header for lane in lanes]
    for lane in lanes:
        yield replace(lane.header, lane=lane.number, lanes=len(lanes))
    shared = {prompt.index for prompt in shared_prompts(headers)}
    measure = None if oracle else Measure(name, headers)
    if measure is None:
        for record in oracle:
            rows = tuple(row for row in record.rows if row.row in shared)
            yield replace(record, rows=rows)
    else:
        yield measure.begin()
    yield TickRecord(tick=0, rounds={lane.number: 0 for lane in lanes})
    tick = 0
    while any(lane.running for lane in lanes):
        tick += 1
        made: list[LaneRecord] = []
        for lane in lanes:
            made += lane.reach(tick)
        yield from made
        if measure is not None:
            yield from measure.of(made)
        if any(isinstance(record, RoundRecord) for record in made):
            yield TickRecord(tick=tick, rounds={lane.number: lane.round for lane in lanes})


class _Lane:
    """One recorded run, given out round by round."""

    def __init__(self, number: int, stream: Iterator[LaneRecord]) -> None:
        self.number = number
        self.round = 0
        self.running = True
        self._stream = stream
        first = next(stream)
        assert isinstance(first, RunHeader), "a trace begins with a header"
        self.header = first

    def reach(self, tick: int) -> list[LaneRecord]:
        """The records up to and with the round of this number."""
        made: list[LaneRecord] = []
        while self.running and self.round < tick:
            record = next(self._stream, None)
            if record is None:
                self.running = False
            elif not isinstance(record, RunHeader):
                made.append(replace(record, lane=self.number))
                self.round += isinstance(record, RoundRecord)
        return made


class Measure:
    """What the first lane wrote, in the records of an oracle.

    Args:
        name: whose tokens these are.
        headers: of all lanes: rows count whose prompts are the same in all of them.
    """

    def __init__(self, name: str, headers: Sequence[RunHeader]) -> None:
        self._name = name
        self._prompts = {prompt.index: len(prompt.ids) for prompt in shared_prompts(headers)}

    def begin(self) -> OracleRecord:
        """Before the first round: which rows can be compared."""
        rows = tuple(OracleRow(row=row) for row in self._prompts)
        return OracleRecord(rows=rows, name=self._name)

    def join(self, prompts: Iterable[Prompt]) -> None:
        """Prompts that joined the queue of all lanes."""
        self._prompts |= {prompt.index: len(prompt.ids) for prompt in prompts}

    def of(self, made: Sequence[LaneRecord]) -> Iterator[OracleRecord]:
        """What is new in these records of a tick."""
        for record in made:
            if not isinstance(record, RoundRecord) or record.lane != 0:
                continue
            rows = tuple(
                OracleRow(
                    row=row.row,
                    first=row.before - self._prompts[row.row],
                    output_ids=row.committed,
                    finish_reason=row.finish_reason,
                    error=row.error,
                )
                for row in record.rows
                if row.row in self._prompts
            )
            if rows:
                yield OracleRecord(rows=rows, name=self._name)


def shared_prompts(headers: Sequence[RunHeader]) -> list[Prompt]:
    """The prompts of the first run that are the same in all of them."""
    others = [{prompt.index: prompt.ids for prompt in header.prompts} for header in headers[1:]]
    return [
        prompt
        for prompt in headers[0].prompts
        if all(other.get(prompt.index) == prompt.ids for other in others)
    ]
