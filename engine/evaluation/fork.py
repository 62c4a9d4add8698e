"""Two lanes of one run: as it went on, and as it goes on from some round under other settings.

Up to the fork both lanes are the original's recorded rounds. From there on the first goes
through the rounds that are recorded already, and then on with the run itself; the second
is a run of its own that begins with the same committed tokens. They go a round each in
turn, and the first one's tokens are the measure of the second's
(`engine.evaluation.trace_compare`).

The second lane leaves where the original's next round begins. What changes the rows before
that round (a fault was switched off and they went back, a prompt joined) happens to both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from engine.config.settings import Settings
from engine.evaluation.compare import Log, failure_of
from engine.evaluation.trace_compare import Measure
from engine.records.fold import RunFold
from engine.records.schema import (
    ChangeRecord,
    Failure,
    LaneRecord,
    Record,
    RoundRecord,
    RunHeader,
    Summary,
    TickRecord,
)
from engine.runs.intervene import changed
from engine.runs.run import Run

if TYPE_CHECKING:
    from engine.pairs.load import Pair

ORIGINAL = "the original"
"""Whose tokens the second lane is compared with."""


class Branch(NamedTuple):
    """What a fork is made of: the original, the round, and what is otherwise from there on."""

    header: RunHeader
    past: Iterable[LaneRecord]
    """The original's records after its header, as far as there are any."""
    more: Iterator[LaneRecord]
    """Those to come: made when they are asked for, in the engine's thread."""
    number: int
    """The round after which the second lane leaves the first; 0: the prompts."""
    was: Settings
    now: Settings
    """In force in the original from there on, and in the second lane."""


class Fork:
    """Makes the records of both lanes, in the form of a comparison's.

    Args:
        log: is given the traceback of a lane that breaks.
    """

    def __init__(self, pair: Pair, branch: Branch, *, log: Log = lambda text: "") -> None:
        self.pair = pair
        self.branch = branch
        self.rounds = {0: 0, 1: 0}
        """Done by each lane."""
        self._log = log
        self._past = iter(branch.past)
        self._ahead: deque[LaneRecord] = deque()
        """Records of the original that were looked at too early."""
        self._run: Run | None = None
        """The second lane's, once it has left the first."""
        self._going: Iterator[Record] | None = None
        """Its records."""
        self._over = False
        """Whether the original has no more rounds."""
        self._measure = Measure(ORIGINAL, [branch.header])

    def records(self) -> Iterator[Record]:
        """Both lanes' records, the measure and the ticks: the past at once, then round by round."""
        header = msgspec.structs.replace(self.branch.header, lane=0, lanes=2)
        yield header
        yield msgspec.structs.replace(header, lane=1, fork=self.branch.number)
        start = RunFold(header.prompts)
        yield from self._shared(start)
        yield from self._leave(start)
        tick = self.branch.number
        yield self._tick(tick)
        try:
            while not self._over or self._going is not None:
                before = dict(self.rounds)
                yield from self._first()
                yield from self._second()
                if self.rounds != before:
                    tick += 1
                    yield self._tick(tick)
        finally:
            self._close()

    def _shared(self, start: RunFold) -> Iterator[Record]:
        """The rounds up to the fork, in both lanes, with all that was changed by then. The
        last one's tick is left for when the lanes have diverged."""
        for record in self._past:
            if not isinstance(record, RoundRecord | ChangeRecord) or (
                record.round > self.branch.number
            ):
                self._ahead.append(record)
                return
            if isinstance(record, RoundRecord):
                yield self._tick(record.round - 1)
            yield record
            yield msgspec.structs.replace(record, lane=1)
            if isinstance(record, ChangeRecord):
                start.join(record.prompts)
                self._measure.join(record.prompts)
            else:
                start.add(record)
                yield from self._measure.of([record])
                self.rounds = {0: record.round, 1: record.round}

    def _leave(self, start: RunFold) -> Iterator[Record]:
        """The second lane begins where both stand."""
        branch = self.branch
        try:
            run = Run(self.pair, branch.now, start.prompts, 1, start)
        except Exception as error:
            yield self._failure(error)
            return
        self._run, self._going = run, run.remaining()
        yield ChangeRecord(
            lane=1,
            round=branch.number,
            kind="fork",
            changed=changed(branch.was, branch.now),
            method=branch.now.method,
            settings=run.header().settings,
        )

    def _first(self) -> Iterator[Record]:
        """The original's next round, with what lies before it; its end, if that was the last."""
        while (record := self._next()) is not None:
            yield record
            if isinstance(record, ChangeRecord):
                yield from self._joined(record)
            if isinstance(record, Summary | Failure):
                break
            if isinstance(record, RoundRecord):
                yield from self._gone_back(record)
                self.rounds[0] = record.round
                yield from self._measure.of([record])
                if not record.is_last:
                    return
                following = self._next()
                if following is None:
                    break
                if not isinstance(following, Summary | Failure):
                    self._ahead.append(following)  # it went on after its end
                    return
                yield following
                break
        self._over = True

    def _joined(self, change: ChangeRecord) -> Iterator[Record]:
        """Prompts that join the original; those before its next round join the second lane."""
        self._measure.join(change.prompts)
        run = self._run
        if run is None or not change.prompts or change.round != self.branch.number:
            return
        yield msgspec.structs.replace(change, lane=1, method=run.settings.method, settings={})
        try:
            for prompt in change.prompts:
                run.join(prompt)
        except Exception as error:
            yield self._failure(error)
            self._close()

    def _gone_back(self, record: RoundRecord) -> Iterator[Record]:
        """Rows that the original's next round takes back go back in the second lane as well."""
        run = self._run
        if run is None or record.round != self.branch.number + 1:
            return
        stand = run.lengths()
        back = {row: length for row, length in record.back.items() if length < stand.get(row, 0)}
        try:
            if back:
                run.restart(lengths=back)
        except Exception as error:
            yield self._failure(error)
            self._close()

    def _second(self) -> Iterator[Record]:
        """The other lane's next round, and its end, if that was the last."""
        if self._going is None:
            return
        try:
            for record in self._going:
                yield record
                if isinstance(record, RoundRecord):
                    self.rounds[1] = record.round
                    if not record.is_last:
                        return
        except Exception as error:
            yield self._failure(error)
        self._close()

    def _next(self) -> LaneRecord | None:
        """The original's next record; None when there are no more."""
        if self._ahead:
            return self._ahead.popleft()
        return next(self._past, None) or next(self.branch.more, None)

    def _failure(self, error: Exception) -> Failure:
        return failure_of(error, 1, self.rounds[1], self._log)

    def _tick(self, tick: int) -> TickRecord:
        return TickRecord(tick=tick, rounds=dict(self.rounds))

    def _close(self) -> None:
        """Let go of the second lane's run, and of its caches with it."""
        close = getattr(self._going, "close", None)
        if close is not None:
            close()
        self._run = self._going = None
