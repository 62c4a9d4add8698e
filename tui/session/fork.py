"""The app's hold on a fork: the run's own rounds in one lane, other settings in the other.

The first lane is the run itself: where its recorded rounds end, the run is asked for the
next one in its own thread, as the key for a step would, so that it is the same run still
when one goes back to it.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from engine.config.settings import Settings
from engine.microscope.watch import Watch
from engine.records.history import History
from engine.records.schema import ChangeRecord, Failure, LaneRecord, Record, RoundRecord, Summary
from engine.runs.worker import EngineWorker, Progress, State
from tui.session.changes import replaced
from tui.session.compare import CompareControl, LaneSource
from tui.session.control import Control
from tui.session.playhead import Playhead
from tui.view.state.compare import Comparison
from tui.view.state.timeline import Timeline

if TYPE_CHECKING:
    from engine.evaluation.compare import Log
    from engine.evaluation.fork import Branch

READING = 0.03
"""Seconds of a look at the history while the past is taken in."""

CHANGING = (
    "batch_size", "window", "draft_tokens", "max_new_tokens", "temperature", "top_k", "top_p",
    "seed",
)  # fmt: skip
"""Settings that may have been others in an earlier round."""


@runtime_checkable
class ForkingSource(Protocol):
    """A source whose run can be forked. `fork` is called in the engine's thread."""

    name: str

    def fork(self, branch: Branch, log: Log, progress: Progress) -> Iterator[Record]: ...


def settings_at(control: Control, number: int) -> Settings:
    """What the run was, or is to be, set to in the round after `number`."""
    timeline = control.timeline
    settings = control.settings
    if number >= timeline.last:
        return settings
    changes: dict[str, object] = {"method": timeline.method_at(number + 1)}
    for name in CHANGING:
        value = timeline.setting_at(number + 1, name)
        if value is not None:
            changes[name] = value
    record = timeline.round_at(number + 1)
    return replaced(settings, **changes, fault=record.fault if record is not None else "")


class Original:
    """A run that is looked on at while it goes on: its records up to now, then those to come.

    Make it in the screen's thread while the run holds; the records are asked for in the
    fork's.
    """

    def __init__(self, control: Control, hold: Callable[[], None]) -> None:
        self._hold = hold
        self._worker: EngineWorker = control.worker
        self._new: queue.SimpleQueue[tuple[LaneRecord, bool]] = queue.SimpleQueue()
        self._worker.listener = self._listen
        while control.take(1.0):
            pass
        self._timeline: Timeline = control.timeline
        self.last = self._timeline.last
        self._changes = list(self._timeline.changes)
        self._end: Summary | Failure | None = None
        if self._worker.state.ended:
            self._end = self._timeline.failure or self._timeline.summary

    def _listen(self, record: Record, held: bool) -> None:
        """In the run's thread."""
        if isinstance(record, RoundRecord | ChangeRecord | Summary | Failure):
            self._new.put((record, held))

    def past(self) -> Iterator[LaneRecord]:
        """What there was when this was made, in order."""
        changes = iter(self._changes)
        change = next(changes, None)
        for place, record in enumerate(self._timeline.rounds):
            if place >= self.last:
                break
            while change is not None and change.round < record.round:
                yield change
                change = next(changes, None)
            yield record
        if change is not None:
            yield change
            yield from changes
        if self._end is not None:
            yield self._end

    def more(self, wait: Callable[[], None]) -> Iterator[LaneRecord]:
        """What came since, then a round whenever one is asked for; `wait` is called meanwhile."""
        while True:
            try:
                record, held = self._new.get(timeout=0.02)
            except queue.Empty:
                if self._worker.state.ended and self._new.empty():
                    return
                wait()
                if self._worker.state is State.PAUSED and self._new.empty():
                    self._worker.step(1)  # again, where something else has paused it since
                continue
            if isinstance(record, RoundRecord):
                if record.round <= self.last:
                    continue  # it came while the past was noted down
                if held:
                    self._hold()
            elif record in self._changes:
                continue
            yield record
            if isinstance(record, ChangeRecord) and record.held:
                return  # no memory for its next round

    def let_go(self) -> None:
        """The run is left alone."""
        if self._worker.listener == self._listen:
            self._worker.listener = None


class ForkSource(LaneSource):
    """Both lanes, in the fork's thread."""

    def __init__(
        self,
        source: ForkingSource,
        main: Control,
        original: Original,
        number: int,
        was: Settings,
        now: Settings,
    ) -> None:
        self.name = source.name
        self.lanes = [was, now]
        self.pace = "round"
        self.number = number
        self._forking = source
        self._original = original
        self._main = main

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        from engine.evaluation.fork import Branch

        header = self._main.timeline.header
        assert header is not None, "a run that is forked has begun"

        def wait() -> None:
            progress("the run goes on", None)

        past: Iterable[LaneRecord] = self._original.past()
        more = self._original.more(wait)
        branch = Branch(header, past, more, self.number, *self.lanes)
        try:
            yield from self._forking.fork(branch, self._write_log, progress)
        finally:
            self._original.let_go()


class ForkWatch(Watch):
    """Breakpoints in a fork: those of the second lane, once it has left the first.

    The first lane is the run, which has its own.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __call__(self, record: Record) -> bool:
        found = [hit for hit in self._find(record) if hit.lane and hit.round > self._number]
        self.hits += found
        return bool(found)


class ForkControl(CompareControl):
    """A fork of a run that holds, gated and pulled like a comparison.

    Args:
        number: the round after which the second lane leaves the run.
        now: its settings.
        after: the worker of the fork whose place this one takes, which is to end first.
    """

    def __init__(
        self,
        main: Control,
        source: ForkingSource,
        number: int,
        was: Settings,
        now: Settings,
        after: EngineWorker | None = None,
    ) -> None:
        self.main = main
        self.number = number
        self.base = main.worker
        """The worker of the run that is forked: another one means another run."""
        self._after = after
        original = Original(main, self._hold)
        self.lanes: ForkSource = ForkSource(source, main, original, number, was, now)
        self.comparison = Comparison()
        self.playhead = Playhead(speed=main.speed)
        Control.__init__(
            self, self.lanes, main.settings, paused=True, speed=main.speed, log=main.log
        )
        self.watch.points = main.watch.points

    @property
    def reading(self) -> bool:
        """Whether the past is still being taken in."""
        return self.comparison.last < self.number and not self.worker.state.ended

    def _hold(self) -> None:
        self.worker.pause()

    def take(self, budget: float = 0.008) -> bool:
        return super().take(max(budget, READING) if self.reading else budget)

    def _worker(self, paused: bool, after: EngineWorker | None) -> EngineWorker:
        self.watch = ForkWatch(self.number)
        return EngineWorker(
            lambda progress: self.lanes.open(self.settings, progress),
            History(),
            paused=paused,
            speed=self._speed,
            log=self.log,
            after=after or self._after,
            watch=self.watch,
            known=self.number,
        )
