"""The line at the top of a comparison, and the lanes' names for small screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events

from tui.view.lines import Line, spread, width_of
from tui.view.panes.compare_status import status_line, tab_pieces
from tui.view.state.compare import LaneFrame
from tui.view.state.frame import Frame
from tui.widgets.lanes import LaneFocused
from tui.widgets.pane import Pane

if TYPE_CHECKING:
    from tui.session.compare import CompareControl
    from tui.session.playhead import Playhead


class CompareBar(Pane):
    """The pair, the settings that the lanes share, and how far it has come."""

    DEFAULT_CSS = "CompareBar { height: 1; overflow-y: hidden; }"

    def __init__(self, control: CompareControl, playhead: Playhead) -> None:
        super().__init__()
        self._control = control
        self._playhead = playhead
        self._looks: list[LaneFrame] = []
        self.count = ""
        """Digits typed before a key."""
        self.note = ""
        """The breakpoint that holds the lanes."""

    def update_lanes(self, looks: list[LaneFrame], count: str) -> None:
        self._looks, self.count = looks, count
        self.repaint()

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        control, playhead = self._control, self._playhead
        state = "running" if playhead.playing else control.state.value
        return [
            status_line(
                control.comparison,
                self._looks,
                playhead.cursor,
                state=state,
                pace=control.lanes.pace,
                speed=control.speed,
                following=playhead.following,
                count=self.count,
                note=self.note,
                stage=control.worker.stage[0],
                width=width,
            )
        ]


class LaneTabs(Pane):
    """A thin rule with the lanes' names and how right they are; the focused one stands out."""

    DEFAULT_CSS = "LaneTabs { height: 1; overflow-y: hidden; }"

    def __init__(self) -> None:
        super().__init__()
        self._looks: list[LaneFrame] = []

    def update_lanes(self, looks: list[LaneFrame]) -> None:
        self._looks = looks
        self.repaint()

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        line: Line = [(" ", "rule")]
        for look in self._looks:
            line += [*tab_pieces(look), ("   ", "rule")]
        note: Line = [("tab ", "dim")] if width_of(line) + 5 <= width else []
        return [spread(line, note, width, (" ", "rule"))]

    def on_click(self, event: events.Click) -> None:
        at = 1
        for look in self._looks:
            end = at + width_of(tab_pieces(look)) + 3
            if at <= event.x < end:
                self.post_message(LaneFocused(look.lane))
                return
            at = end
