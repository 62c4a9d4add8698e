"""Several methods on the same prompts, side by side, with the oracle beside them.

Each lane is a run of its own, with its own caches; the weights are shared. All of them
go on in one thread, one round at a time: the lane that is furthest behind goes next,
whatever "behind" is measured in. A tick is over when every lane that still runs has gone
at least once; then the oracle catches up with the lane that has come furthest.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from engine.config.errors import BatchspecError
from engine.config.limits import LARGEST_LANES, Pace
from engine.config.settings import Settings
from engine.evaluation.live_oracle import LiveOracle
from engine.evaluation.oracle import Oracle
from engine.models.device_memory import require_memory
from engine.records.schema import Failure, Prompt, Record, RoundRecord, RunHeader, TickRecord
from engine.runs.run import Run

if TYPE_CHECKING:
    from engine.pairs.load import Pair

BURST = 64
"""Rounds of a tick at most: a lane that begins again does not catch up in one go."""

Log = Callable[[str], str]
"""Writes a traceback somewhere and says where."""


@dataclass
class Lane:
    """One method's run, and how far it has come.

    Attributes:
        rounds, tokens, seconds: done, committed and spent by the present run.
        lengths: new tokens of each of its rows.
    """

    number: int
    settings: Settings
    stream: Iterator[Record] | None = None
    rounds: int = 0
    tokens: int = 0
    seconds: float = 0.0
    lengths: Counter[int] = field(default_factory=Counter)

    @property
    def running(self) -> bool:
        return self.stream is not None

    def behind(self, pace: Pace) -> float:
        """The smaller, the further behind."""
        return {"round": self.rounds, "tokens": self.tokens, "time": self.seconds}[pace]

    def count(self, record: RoundRecord) -> None:
        """Take a round into account."""
        self.rounds, self.seconds = record.round, record.elapsed
        for row in record.rows:
            self.tokens += len(row.committed)
            self.lengths[row.row] += len(row.committed)


class Compare:
    """A comparison of up to four lanes.

    Args:
        pair: shared by all lanes.
        lanes: the settings of each; device and dtype are the pair's.
        prompts: the same for all.
        oracle: of this pair; what it knows already is not computed again.
        log: is given the traceback of a lane that breaks.
    """

    def __init__(
        self,
        pair: Pair,
        lanes: Seq[Settings],
        prompts: Seq[Prompt],
        *,
        pace: Pace = "round",
        oracle: Oracle | None = None,
        log: Log = lambda text: "",
    ) -> None:
        assert 1 <= len(lanes) <= LARGEST_LANES, "one to four lanes"
        self.pair = pair
        self.pace = pace
        self.prompts = tuple(prompts)
        self.lanes = [Lane(number, settings.check()) for number, settings in enumerate(lanes)]
        self.tick = 0
        self._log = log
        self._live_oracle = LiveOracle(oracle or Oracle(pair), self.prompts, lanes[0])
        self._anew: set[int] = set()

    def change(self, lane: int, settings: Settings) -> None:
        """Let a lane begin again from the prompts under other settings; it then catches up.

        Call between two rounds, in the thread that runs them.
        """
        self.lanes[lane].settings = settings.check()
        self._anew.add(lane)

    def records(self) -> Iterator[Record]:
        """The lanes' records, the oracle's and the ticks, as they come.

        Raises:
            UserError: the memory will not do for all of them.
        """
        lengths = [len(prompt.ids) for prompt in self.prompts if prompt.error is None]
        settings = [lane.settings for lane in self.lanes]
        require_memory(self.pair.target, self.pair.draft, settings, lengths)
        try:
            for lane in self.lanes:
                yield from self._begin(lane)
            yield self._level()
            while self._anew or any(lane.running for lane in self.lanes):
                yield from self._one_tick()
            yield from self._live_oracle.rest()
        finally:
            for lane in self.lanes:
                _close(lane)

    def _one_tick(self) -> Iterator[Record]:
        anew = set(self._anew)
        yield from self._begin_anew()
        going = [lane for lane in self.lanes if lane.running]
        waiting = {lane.number for lane in going}
        others = [lane.behind(self.pace) for lane in going if lane.number not in anew]
        level = min(others, default=0.0)
        for _ in range(BURST):
            running = [lane for lane in self.lanes if lane.running]
            if not waiting or not running:
                break
            lane = min(running, key=lambda lane: lane.behind(self.pace))
            caught_up = lane.behind(self.pace) >= level
            yield from self._one_round(lane)
            if caught_up or not lane.running:
                waiting.discard(lane.number)
            if self._anew:
                break
        yield from self._live_oracle.reach(self._furthest())
        self.tick += 1
        yield self._level()

    def _begin_anew(self) -> Iterator[Record]:
        while self._anew:
            lane = self.lanes[self._anew.pop()]
            _close(lane)
            yield from self._begin(lane)

    def _begin(self, lane: Lane) -> Iterator[Record]:
        """Start a lane's run; the first record is its header."""
        lane.rounds, lane.tokens, lane.seconds = 0, 0, 0.0
        lane.lengths = Counter()
        settings = lane.settings
        try:
            run = Run(self.pair, settings, self.prompts, lane.number)
        except Exception as error:
            yield RunHeader(
                lane=lane.number,
                lanes=len(self.lanes),
                method=settings.method,
                pair=self.pair.info,
                prompts=self.prompts,
            )
            yield self._failure(lane, error)
            return
        lane.stream = run.remaining()
        yield msgspec.structs.replace(run.header(), lanes=len(self.lanes))

    def _one_round(self, lane: Lane) -> Iterator[Record]:
        """One round of a lane, and its summary if that was the last one."""
        assert lane.stream is not None
        try:
            record = next(lane.stream)
            if isinstance(record, RoundRecord):
                lane.count(record)
                yield record
                if not record.is_last:
                    return
                record = next(lane.stream)
        except Exception as error:
            yield self._failure(lane, error)
            return
        yield record
        _close(lane)

    def _failure(self, lane: Lane, error: Exception) -> Failure:
        """A lane that breaks ends; the others go on."""
        _close(lane)
        return failure_of(error, lane.number, lane.rounds, self._log)

    def _furthest(self) -> dict[int, int]:
        """For each row, the new tokens of the lane that has most of them."""
        most: dict[int, int] = {}
        for lane in self.lanes:
            for row, length in lane.lengths.items():
                most[row] = max(length, most.get(row, 0))
        return most

    def _level(self) -> TickRecord:
        rounds = {lane.number: lane.rounds for lane in self.lanes}
        return TickRecord(tick=self.tick, rounds=rounds, pace=self.pace)


def failure_of(error: Exception, lane: int, rounds: int, log: Log) -> Failure:
    """What is said of a lane that broke after so many rounds."""
    if isinstance(error, BatchspecError):
        return Failure(lane=lane, message=str(error), round=rounds)
    where = log("".join(traceback.format_exception(error)))
    message = f"{type(error).__name__}: {error}".rstrip(": ")
    return Failure(lane=lane, message=message, round=rounds, log=where)


def _close(lane: Lane) -> None:
    """Let go of a lane's run, and of its caches with it."""
    close = getattr(lane.stream, "close", None)
    if close is not None:
        close()
    lane.stream = None
