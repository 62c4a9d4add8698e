"""The app's hold on a comparison: lanes of the same source, in an engine thread of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from engine.config.limits import PACES, Pace
from engine.config.settings import Settings
from engine.records.schema import Record
from engine.runs.worker import Progress
from tui.session.control import Control
from tui.session.playhead import Playhead
from tui.view.state.compare import Comparison
from tui.view.state.timeline import Timeline

if TYPE_CHECKING:
    from engine.evaluation.compare import Log

METHODS = ("eqspec", "exspec", "bsp", "dsd")
"""What the lanes run at first."""


@runtime_checkable
class ComparingSource(Protocol):
    """A source whose models can run several lanes. All but `compare` in the engine's thread."""

    name: str
    live: bool

    def compare(
        self, lanes: Sequence[Settings], pace: Pace, log: Log, progress: Progress
    ) -> Iterator[Record]: ...

    def change_lane(self, lane: int, settings: Settings) -> None: ...

    def keep_level(self, pace: Pace) -> None: ...


class LaneSource:
    """A source of lanes: the models of a run, which waits while they are compared."""

    live = True

    def __init__(self, source: ComparingSource, main: Control, lanes: list[Settings]) -> None:
        self.name = source.name
        self.source = source
        self.lanes = lanes
        self.pace: Pace = "round"
        self._main = main

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        """The lanes' records."""
        yield from self.source.compare(self.lanes, self.pace, self._write_log, progress)

    def _write_log(self, text: str) -> str:
        """Append a traceback to the log. Returns where that is."""
        path = self._main.log
        if path is None:
            return ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with Path(path).open("a", encoding="utf-8", errors="replace") as file:
                file.write(time.strftime("%Y-%m-%d %H:%M:%S\n") + text + "\n")
        except OSError:
            return ""
        return str(path)


class CompareControl(Control):
    """A comparison, gated and pulled like a run."""

    def __init__(
        self, main: Control, source: ComparingSource, lanes: list[Settings], *, paused: bool = False
    ) -> None:
        self.main = main
        self.lanes = LaneSource(source, main, lanes)
        self.comparison = Comparison()
        self.playhead = Playhead(speed=main.speed)
        super().__init__(self.lanes, main.settings, paused=paused, speed=main.speed, log=main.log)
        self.watch.points = main.watch.points

    @property
    def timeline(self) -> Timeline:
        """The first lane's."""
        lanes = self.comparison.lanes
        return lanes[min(lanes)][-1].timeline if lanes else Timeline()

    def absorb(self, record: Record) -> None:
        self.comparison.add(record)

    def restart(self, settings: Settings | None = None, *, paused: bool | None = None) -> None:
        self.comparison = Comparison()
        super().restart(settings, paused=paused)

    def change(self, lane: int, settings: Settings) -> None:
        """Give a lane another method; it begins again, and catches up."""
        self.lanes.lanes[lane] = settings
        if self.worker.state.ended:
            self.restart()
            return
        self.worker.between_rounds(lambda: self.lanes.source.change_lane(lane, settings))

    def next_pace(self) -> Pace:
        """Keep the lanes level in something else."""
        pace = PACES[(PACES.index(self.lanes.pace) + 1) % len(PACES)]
        self.lanes.pace = pace
        if not self.worker.state.ended:
            self.worker.between_rounds(lambda: self.lanes.source.keep_level(pace))
        return pace


def lane_settings(settings: Settings) -> list[Settings]:
    """The default lanes: two correct methods, two broken ones. A fault stays with its eqspec."""
    methods = ["eqspec", *METHODS] if settings.fault else [*METHODS]
    lanes = [under(settings, method) for method in methods[:4]]
    if settings.fault:
        lanes[0] = msgspec.structs.replace(lanes[0], fault=settings.fault)
    return lanes


def under(settings: Settings, method: str) -> Settings:
    """The same settings under another method, without any fault."""
    return msgspec.structs.replace(settings, method=method, fault="")
