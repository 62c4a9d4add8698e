"""A pane under a thin rule that carries its title and a note."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from tui.view.lines import Line, spread
from tui.view.state.frame import Frame
from tui.widgets.pane import Pane


class Heading(Pane):
    """One line: a thin rule with a title at the left and a note at the right."""

    DEFAULT_CSS = "Heading { height: 1; overflow-y: hidden; }"

    def __init__(self, title: Line) -> None:
        super().__init__()
        self._title = title
        self._note: Line = []

    def set(self, title: Line | None = None, note: Line | None = None) -> None:
        if title is not None:
            self._title = title
        if note is not None:
            self._note = note
        self.repaint()

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        left: Line = [("─ ", "rule"), *self._title, (" ", "rule")]
        right: Line = [*self._note, ("─", "rule")] if self._note else []
        return [spread(left, right, width, ("─", "rule"))]


class Section(Vertical):
    """A heading and its pane."""

    DEFAULT_CSS = """
    Section { height: 1fr; width: 1fr; background: $background; }
    """

    def __init__(self, title: str, pane: Pane, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.heading = Heading([(title, "title")])
        self.pane = pane

    def compose(self) -> ComposeResult:
        yield self.heading
        yield self.pane

    def show(self, frame: Frame) -> None:
        """Give the frame to the pane; a subclass sets its heading too."""
        self.pane.show(frame)
