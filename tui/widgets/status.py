"""The line at the top: what runs, and how it goes."""

from __future__ import annotations

from tui.view.lines import Line
from tui.view.panes.status import status_lines
from tui.view.state.frame import Frame
from tui.widgets.pane import Pane


class StatusBar(Pane):
    """Pair, method, device, sizes; round, pace, acceptance, realignment."""

    DEFAULT_CSS = "StatusBar { height: 1; overflow-y: hidden; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.state = "loading"
        self.speed: float | None = None
        self.following = True
        self.count = ""
        self.note = ""
        """The breakpoint that holds the run."""

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        return status_lines(
            frame,
            self.state,
            self.speed,
            self.following,
            self.count,
            width,
            height,
            self.note,
        )
