"""A comparison's records, indexed as they come: lanes, ticks, and the oracle beside them.

The cursor counts ticks. What a lane shows at a tick is one of its rounds; a lane that
began again shows, before that, the run that it had.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.records.match import Match, OracleFold
from engine.records.schema import Failure, OracleRecord, Record, RoundRecord, RunHeader, TickRecord
from tui.view.state.cursor import LAST, Cursor
from tui.view.state.frame import CellMode, Frame
from tui.view.state.timeline import Timeline


class Take(NamedTuple):
    """One run of a lane."""

    timeline: Timeline
    match: Match


class Moment(NamedTuple):
    """What a lane shows at a tick: which run, and which of its rounds."""

    take: int
    round: int


class Comparison:
    """Everything that the screen knows of a comparison."""

    def __init__(self) -> None:
        self.lanes: dict[int, list[Take]] = {}
        self.oracle = OracleFold()
        self.ticks: list[dict[int, Moment]] = []
        self.paces: list[str] = []
        """What the lanes were kept level in, tick by tick."""
        self.failure: Failure | None = None
        """What broke all of it."""
        self.expected = 0
        """How many lanes there are to be."""
        self.names: tuple[str, ...] = ()
        """What each lane is called beside its method: the file that it comes from."""
        self.fork: int | None = None
        """The round after which a lane left the first one, where they have one past."""
        self.revision = 0
        self._open = False

    @property
    def last(self) -> int:
        """The newest tick; it may not be over yet."""
        return len(self.ticks) + self._open

    @property
    def complete(self) -> bool:
        """Whether every lane has said what it runs."""
        return 0 < self.expected <= len(self.lanes)

    def add(self, record: Record) -> None:
        """Take in one record."""
        self.revision += 1
        if isinstance(record, OracleRecord):
            self._add_oracle(record)
        elif isinstance(record, TickRecord):
            self._add_tick(record)
        elif isinstance(record, RunHeader):
            self.expected = record.lanes
            self.fork = record.fork if record.fork is not None else self.fork
            take = Take(Timeline(record.lane), Match(self.oracle))
            take.timeline.add(record)
            self.lanes.setdefault(record.lane, []).append(take)
        elif record.lane not in self.lanes:
            self.failure = record if isinstance(record, Failure) else self.failure
        else:
            take = self.take(record.lane)
            take.timeline.add(record)
            if isinstance(record, RoundRecord):
                self._open = True
                take.match.add(record)

    def _add_oracle(self, record: OracleRecord) -> None:
        back = self.oracle.taken_back(record)
        rows = self.oracle.add(record)
        for takes in self.lanes.values():
            for row, place in back.items():
                takes[-1].match.measure_went_back(row, place)
            takes[-1].match.check(rows)
            if record.tolerance is not None:
                takes[-1].match.judge_again()

    def _add_tick(self, record: TickRecord) -> None:
        if record.tick:
            self.paces.append(record.pace)
            self.ticks.append(
                {
                    lane: Moment(len(takes) - 1, record.rounds.get(lane, takes[-1].timeline.last))
                    for lane, takes in self.lanes.items()
                }
            )
        self._open = False

    def take(self, lane: int) -> Take:
        """The present run of a lane."""
        return self.lanes[lane][-1]

    def moment(self, lane: int, tick: int) -> Moment:
        """Which run and round a lane shows at a tick."""
        takes = self.lanes[lane]
        if tick > len(self.ticks):
            return Moment(len(takes) - 1, takes[-1].timeline.last)
        if tick < 1:
            return Moment(0, 0)
        return self.ticks[tick - 1].get(lane, Moment(0, 0))

    def divergences(self, lane: int) -> list[tuple[int, int]]:
        """The ticks in which rows of the lane's present run leave the oracle, with the rows."""
        ticks = self.ticks_of(lane)
        divergences = self.take(lane).match.divergences.items()
        return sorted((ticks[one.round], row) for row, one in divergences if one.round in ticks)

    def ticks_of(self, lane: int) -> dict[int, int]:
        """In which tick each round of the lane's present run was made."""
        take = len(self.lanes[lane]) - 1
        found: dict[int, int] = {}
        for tick in range(1, self.last + 1):
            moment = self.moment(lane, tick)
            if moment.take == take:
                for number in range(len(found) + 1, moment.round + 1):
                    found[number] = tick
        return found

    def finished(self, lane: int) -> bool:
        """Whether the lane has come to its end, well or badly."""
        timeline = self.take(lane).timeline
        return timeline.summary is not None or timeline.failure is not None


class LaneFrame(NamedTuple):
    """One lane at a cursor: what its panes are a function of."""

    lane: int
    frame: Frame
    match: Match
    focused: bool = False
    moved: bool = True
    """Whether the lane did a round in this tick."""
    shared: tuple[int, ...] = ()
    """Rows that the other lanes have in their batches."""
    fork: int | None = None
    """The round after which the lanes of a fork part."""
    name: str = ""
    """Of the file that the lane comes from, where several are laid side by side."""

    @property
    def measure(self) -> bool:
        """Whether this is the recording with which the others are compared."""
        return self.lane == 0 and self.fork is None and bool(self.match.oracle.name)

    @property
    def uncompared(self) -> list[int]:
        """Rows of which nothing is known that they could be compared with, among recordings."""
        if not self.name:
            return []  # the oracle is asked about every row
        return [row for row in self.frame.timeline.tracks if row not in self.match.oracle.answers]

    @property
    def number(self) -> int:
        """The last round whose tokens are committed."""
        return self.frame.committed_round


def lane_frame(
    comparison: Comparison,
    lane: int,
    cursor: Cursor,
    *,
    focus: int = 0,
    selected: int | None = None,
    mode: CellMode = CellMode.TOKEN,
    slide: float = 1.0,
    busy: bool = False,
) -> LaneFrame:
    """A lane at a cursor over the ticks."""
    take, number = comparison.moment(lane, cursor.round)
    before = comparison.moment(lane, cursor.round - 1)
    moved = before != (take, number)
    phase = cursor.phase if moved else LAST
    entry = comparison.lanes[lane][take]
    frame = Frame(
        timeline=entry.timeline,
        cursor=Cursor(number, phase if number else LAST),
        selected=selected,
        mode=mode,
        slide=slide if moved else 1.0,
        busy=busy,
    )
    return LaneFrame(
        lane,
        frame,
        entry.match,
        lane == focus,
        moved,
        _shared(comparison, cursor),
        comparison.fork,
        comparison.names[lane] if lane < len(comparison.names) else "",
    )


def _shared(comparison: Comparison, cursor: Cursor) -> tuple[int, ...]:
    """The rows of the fixed batches at this cursor, lowest first; at most a batch of them."""
    rows: set[int] = set()
    size = 0
    for lane, takes in comparison.lanes.items():
        take, number = comparison.moment(lane, cursor.round)
        timeline = takes[take].timeline
        record = timeline.round_at(number)
        if record is not None and record.kind == "batch":
            rows |= {row.row for row in record.rows}
            size = max(size, len(record.rows))
    return tuple(sorted(rows)[:size])
