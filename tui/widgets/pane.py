"""The base of all panes: lines of styled text, repainted only where they changed."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.view.lines import Line, Piece
from tui.view.state.frame import Frame
from tui.widgets.styles import palette_of


class Pane(ScrollView):
    """Draws what `paint` returns for a frame.

    A subclass says what its lines are. Setting a frame paints them again and
    refreshes the lines that differ, no others.
    """

    DEFAULT_CSS = """
    Pane {
        height: 1fr;
        width: 1fr;
        background: $background;
        scrollbar-size-vertical: 1;
        overflow-x: hidden;
        overflow-y: auto;
    }
    """
    can_focus = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.frame = Frame()
        self._lines: list[Line] = []

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        """The lines for this frame in this room."""
        raise NotImplementedError

    def show(self, frame: Frame) -> None:
        """Take a new frame."""
        self.frame = frame
        self.repaint()

    def repaint(self) -> None:
        """Paint the lines again and refresh those that changed."""
        width, height = self._room()
        if width <= 0 or height <= 0 or not self.display:
            return
        lines = self.paint(self.frame, width, height)
        old, self._lines = self._lines, lines
        if len(old) != len(lines):
            self.virtual_size = Size(width, len(lines))
            self.refresh()
            return
        top = round(self.scroll_y)
        for place, (before, after) in enumerate(zip(old, lines, strict=True)):
            if before != after and top <= place < top + height:
                self.refresh(Region(0, place - top, self.size.width, 1))

    def _room(self) -> tuple[int, int]:
        size = self.scrollable_content_region.size
        return size.width, size.height

    def on_resize(self) -> None:
        self._lines = []
        self.repaint()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def ink(self, name: str) -> Style:
        """The style that the theme gives this name."""
        return palette_of(self.app.theme_variables)[name]

    def strip(self, line: list[Piece], width: int) -> Strip:
        """A line as the screen wants it."""
        palette = palette_of(self.app.theme_variables)
        segments = [Segment(text, palette[name]) for text, name in line if text]
        return Strip(segments).adjust_cell_length(width, palette["text"])

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        place = y + round(self.scroll_y)
        if place >= len(self._lines):
            return Strip.blank(width, self.ink("text"))
        return self.strip(self._lines[place], width)
