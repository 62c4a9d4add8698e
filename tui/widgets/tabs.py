"""The names of the lower panes in one line, for screens with room for one of them."""

from __future__ import annotations

from textual import events
from textual.message import Message

from tui.view.frame import Frame
from tui.view.lines import Line, spread
from tui.widgets.pane import Pane


class PaneTabs(Pane):
    """A thin rule with the panes' names; the current one stands out."""

    DEFAULT_CSS = "PaneTabs { height: 1; overflow-y: hidden; display: none; }"

    class Picked(Message):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names
        self.current = 0

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        line: Line = [("─ ", "rule")]
        for place, name in enumerate(self.names):
            line.append((name, "tab-current" if place == self.current else "tab"))
            line.append(("  ", "rule"))
        note: Line = [(" tab ", "dim"), ("─", "rule")] if width >= 50 else []
        return [spread(line, note, width, ("─", "rule"))]

    def on_click(self, event: events.Click) -> None:
        at = 2
        for place, name in enumerate(self.names):
            if at <= event.x < at + len(name) + 1:
                self.post_message(self.Picked(place))
                return
            at += len(name) + 2
