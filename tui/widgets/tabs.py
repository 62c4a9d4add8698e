"""The names of the lower panes in one line, for screens with room for one of them."""

from __future__ import annotations

from textual import events
from textual.message import Message

from tui.view.lines import Line, spread, width_of
from tui.view.panes.invariants import broken_pieces
from tui.view.state.frame import Frame
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
            line += self._sign(name)
            line.append((name, "tab-current" if place == self.current else "tab"))
            line.append(("  ", "rule"))
        note: Line = [(" tab ", "dim"), ("─", "rule")] if width >= 50 else []
        return [spread(line, note, width, ("─", "rule"))]

    def _sign(self, name: str) -> Line:
        """What breaks shows in front of the name of the pane that tells it."""
        pieces = broken_pieces(self.frame) if name == "invariants" else []
        return [(f"{text[:1]} ", style) for text, style in pieces]

    def on_click(self, event: events.Click) -> None:
        at = 2
        for place, name in enumerate(self.names):
            size = width_of(self._sign(name)) + len(name)
            if at <= event.x < at + size + 1:
                self.post_message(self.Picked(place))
                return
            at += size + 2
