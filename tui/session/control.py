"""The app's hold on the engine: start it, gate it, take in what it has made."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from engine.config.settings import Settings
from engine.microscope.watch import Watch
from engine.records.history import History
from engine.records.schema import OracleRecord, Record, TickRecord
from engine.runs.worker import EngineWorker, OpenRecords, State
from tui.session.source import Source
from tui.view.state.timeline import Timeline

SLICE = 32
"""Records taken in between two looks at the clock."""


class Control:
    """One source, the worker that runs it, and the timelines of its lanes."""

    def __init__(
        self,
        source: Source,
        settings: Settings,
        *,
        paused: bool = False,
        speed: float | None = None,
        log: Path | None = None,
    ) -> None:
        self.source = source
        self.settings = settings
        self.log = log
        self.timelines: dict[int, Timeline] = {0: Timeline()}
        self.failed = False
        self.watch = Watch()
        """The breakpoints, and where they applied."""
        self.besides: list[Control] = []
        """Others of the same source, that are stopped together with this one; last the one
        that was looked at last."""
        self._taken = 0
        self._paused = paused
        self._speed = speed
        self.worker = self._worker(paused, None)

    def _worker(self, paused: bool, after: EngineWorker | None) -> EngineWorker:
        return EngineWorker(
            partial(self.source.open, self.settings),
            History(),
            paused=paused,
            speed=self._speed,
            gated=self.source.live,
            log=self.log,
            after=after,
            watch=self.watch,
        )

    @property
    def beside(self) -> Control | None:
        """The one that was looked at last."""
        return self.besides[-1] if self.besides else None

    def look_at(self, other: Control, instead: Control | None = None) -> None:
        """Put another one beside this; `instead`: the one whose place it takes."""
        self.besides = [one for one in self.besides if one not in (other, instead)] + [other]

    def start(self) -> None:
        self.worker.start()

    def restart(self, settings: Settings | None = None, *, paused: bool | None = None) -> None:
        """Begin again, with other settings if given; the old run ends by itself."""
        if settings is not None:
            self.settings = settings
        old = self.worker
        held = not old.running if paused is None else paused
        if old.state.ended and paused is None:
            held = False
        old.stop()
        self.timelines = {0: Timeline()}
        self._taken = 0
        self.worker = self._worker(held, old)
        self.worker.start()

    def go_on(self, open_records: OpenRecords) -> None:
        """More records of a run that had ended; those that are there stay."""
        old = self.worker
        self.worker = EngineWorker(
            open_records,
            old.history,
            speed=self._speed,
            log=self.log,
            after=old,
            watch=self.watch,
        )
        self.worker.start()

    @property
    def timeline(self) -> Timeline:
        """The first lane."""
        return self.timelines[min(self.timelines)]

    @property
    def state(self) -> State:
        """What the worker does, as far as its records are taken in."""
        state = self.worker.state
        if state.ended and self._taken < len(self.worker.history):
            return State.RUNNING
        return state

    @property
    def speed(self) -> float | None:
        return self._speed

    @speed.setter
    def speed(self, value: float | None) -> None:
        self._speed = value
        self.worker.speed = value

    def take(self, budget: float = 0.008) -> bool:
        """Take in new records for `budget` seconds at most. Returns whether there were any."""
        history = self.worker.history
        if self._taken >= len(history):
            return False
        until = time.perf_counter() + budget
        while time.perf_counter() < until:
            records = history.since(self._taken, SLICE)
            if not records:
                break
            self._taken += len(records)
            for record in records:
                self.absorb(record)
        history.release(self._taken)
        return True

    def absorb(self, record: Record) -> None:
        """Give one record to its lane."""
        if isinstance(record, OracleRecord | TickRecord):
            return
        lane = self.timelines.get(record.lane)
        if lane is None:
            lane = self.timelines[record.lane] = Timeline(record.lane)
        lane.add(record)

    def stop(self, timeout: float = 0.0) -> bool:
        """Ask the engine to end. Returns whether it has."""
        others = [one.stop(timeout) for one in self.besides]
        return self.worker.stop(timeout) and all(others)
