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
    from tui.screens.compare import CompareScreen


class CompareBar(Pane):
    """The pair, the settings that the lanes share, and how far it has come."""

    DEFAULT_CSS = "CompareBar { height: 1; overflow-y: hidden; }"

    def __init__(self, owner: CompareScreen) -> None:
        super().__init__()
        self._owner = owner
        self._looks: list[LaneFrame] = []
        self.note = ""
        """The breakpoint that holds the lanes."""

    def update_lanes(self, looks: list[LaneFrame]) -> None:
        self._looks = looks
        self.repaint()

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        owner = self._owner
        playhead = owner.playhead
        state = "running" if playhead.playing else owner.compared.state.value
        return [
            status_line(
                owner.comparison,
                self._looks,
                playhead.cursor,
                state=state,
                pace=owner.compared.lanes.pace,
                speed=owner.compared.speed,
                following=playhead.following,
                count=owner.count,
                note=self.note,
                stage=owner.compared.worker.stage[0],
                width=width,
            )
        ]


class LaneTabs(Pane):
    """A thin rule with the lanes' names and how right they are; the focused one stands out."""

    DEFAULT_CSS = "LaneTabs { height: 1; overflow-y: hidden; }"

    def __init__(self, owner: CompareScreen) -> None:
        super().__init__()
        self._owner = owner
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
