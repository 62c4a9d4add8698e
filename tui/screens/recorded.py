"""Recorded runs side by side: the screen of a comparison, over traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.config.settings import Settings
from engine.records.schema import Record
from engine.runs.worker import Progress
from tui.screens.compare import CompareScreen
from tui.session.compare import CompareControl, LaneSource
from tui.session.control import Control
from tui.session.playhead import Playhead
from tui.session.source import Source
from tui.view.state.compare import Comparison

OVER = "A recorded run stays as it was."


class RecordedLanes(LaneSource):
    """The lanes of a recording, which come as they were written."""

    live = False

    def __init__(self, source: Source, lanes: list[Settings]) -> None:
        self.name = source.name
        self.lanes = lanes
        self.pace = "round"
        self._recorded = source

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        yield from self._recorded.open(settings, progress)


class RecordedControl(CompareControl):
    """A recorded comparison, or several runs laid side by side: read to the end at once."""

    def __init__(
        self,
        source: Source,
        lanes: list[Settings],
        names: tuple[str, ...] = (),
        *,
        speed: float | None,
        log: Path | None,
    ) -> None:
        self.lanes = RecordedLanes(source, lanes)
        self.comparison = Comparison()
        self.comparison.names = names
        self.playhead = Playhead(speed=speed)
        Control.__init__(self, self.lanes, lanes[0], speed=speed, log=log)
        self.main = self


class RecordedScreen(CompareScreen):
    """A comparison that cannot be changed any more."""

    def __init__(self, control: RecordedControl, playhead: Playhead) -> None:
        super().__init__(control, playhead, resume=False)
        if control.comparison.fork is not None:
            self.keys_of, self.focus_lane = "fork", 1

    def _stays(self) -> None:
        self.take_count()
        self.notify(OVER, timeout=3)

    def action_restart(self) -> None:
        self._stays()

    def action_choose_method(self) -> None:
        self._stays()

    def action_next_pace(self) -> None:
        self._stays()

    def action_compare(self) -> None:
        self._stays()

    def action_fork(self) -> None:
        self._stays()

    def action_faults(self) -> None:
        """The known mistakes, to be read."""
        self.open("faults")
