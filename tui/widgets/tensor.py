"""The batch as it lies in memory: the centre of the screen."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.message import Message

from engine.config.counted import counted
from tui.view.batch.paint_tensor import (
    ZOOMS,
    Geometry,
    default_zoom,
    geometry,
    paint_legend,
    paint_phases,
    paint_row,
    paint_ruler,
    row_height,
)
from tui.view.batch.pick import token_under
from tui.view.batch.tensor import TensorView, tensor_view
from tui.view.lines import Line
from tui.view.state.completed import UNKNOWN
from tui.view.state.frame import Frame
from tui.widgets.pane import Pane
from tui.widgets.panes import RowPicked
from tui.widgets.section import Section


class TokenPicked(Message):
    """A cell of the selected row was clicked."""

    def __init__(self, row: int, place: int | None) -> None:
        super().__init__()
        self.row = row
        self.place = place
        """Which of the row's tokens it holds; None: none of its own."""


class TensorPane(Pane):
    """Rows of cells. Only the rows in view are painted."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = TensorView()
        self.zoom: int | None = None
        """Terminal cells to a column; None: what suits the width."""
        self.hidden = 0
        """Columns hidden at the right."""
        self._each = 1

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        self.view = tensor_view(frame)
        rows = self.view.rows
        self._each = each = row_height(len(rows), height)
        shape = self.shape(width)
        top = round(self.scroll_y)
        lines: list[Line] = []
        for place, row in enumerate(rows):
            begin = place * each
            if begin + each <= top or begin >= top + height:
                lines.extend([] for _ in range(each))
            else:
                lines.extend(paint_row(frame, self.view, row, shape, each))
        return lines

    def shape(self, width: int) -> Geometry:
        zoom = default_zoom(width, self.view.block) if self.zoom is None else self.zoom
        self.hidden = max(0, min(self.hidden, self.view.end - 1))
        return geometry(self.view, width, zoom, self.hidden)

    def change_zoom(self, step: int) -> None:
        """Wider or narrower cells."""
        current = default_zoom(self.size.width, self.view.block) if self.zoom is None else self.zoom
        place = min(range(len(ZOOMS)), key=lambda index: abs(ZOOMS[index] - current))
        self.zoom = ZOOMS[max(0, min(len(ZOOMS) - 1, place + step))]
        self.repaint()

    def pan(self, columns: int) -> None:
        """Look at earlier (negative) or later columns."""
        self.hidden = max(0, self.hidden - columns)
        self.repaint()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            self.repaint()

    def reveal(self, row: int) -> None:
        """Scroll so that this row of the batch can be seen."""
        for place, entry in enumerate(self.view.rows):
            if entry.row == row:
                top, height = round(self.scroll_y), self.size.height
                begin, end = place * self._each, (place + 1) * self._each
                if begin < top:
                    self.scroll_to(y=begin, animate=False)
                elif end > top + height:
                    self.scroll_to(y=end - height, animate=False)

    def on_click(self, event: events.Click) -> None:
        place = (event.y + round(self.scroll_y)) // self._each
        if not 0 <= place < len(self.view.rows):
            return
        row = self.view.rows[place]
        if row.row != self.frame.selected:
            self.post_message(RowPicked(row.row))
            return
        shape = self.shape(self._room()[0])
        self.post_message(TokenPicked(row.row, token_under(self.view, row, shape, event.x)))

    def on_mouse_scroll_left(self, event: events.MouseScrollLeft) -> None:
        self.pan(-4)

    def on_mouse_scroll_right(self, event: events.MouseScrollRight) -> None:
        self.pan(4)


class Ruler(Pane):
    """The names of the figures and the column numbers, above the rows."""

    DEFAULT_CSS = "Ruler { height: 1; overflow-y: hidden; }"

    def __init__(self, tensor: TensorPane) -> None:
        super().__init__()
        self._tensor = tensor

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        inner = self._tensor.scrollable_content_region.size.width or width
        return [paint_ruler(self._tensor.view, self._tensor.shape(inner))]


class TensorSection(Section):
    """The tensor under its heading and its ruler."""

    def __init__(self, *, id: str | None = None) -> None:
        self.tensor = TensorPane(id="tensor")
        super().__init__("batch", self.tensor, id=id)
        self.ruler = Ruler(self.tensor)

    def compose(self) -> ComposeResult:
        yield self.heading
        yield self.ruler
        yield self.tensor

    def show(self, frame: Frame) -> None:
        self.tensor.show(frame)
        self.update_heading()
        self.ruler.show(frame)

    def repaint(self) -> None:
        """After a change of zoom or place."""
        self.tensor.repaint()
        self.update_heading()
        self.ruler.repaint()

    def update_heading(self) -> None:
        frame, view = self.tensor.frame, self.tensor.view
        title: Line = [("batch", "title")]
        record = frame.record
        if record is not None and record.kind in ("grouped", "fallback"):
            title.append((f" · {record.kind}", "good" if record.kind == "grouped" else "realign"))
        if view.rows:
            title.append((f"  L = {view.edge if view.edge_known else UNKNOWN}", "dim"))
        title.append((f"  {frame.mode.title}", "text"))
        if self.size.width >= 110:
            title += paint_legend(frame)
        if self.tensor.hidden:
            title.append((f"  ‹ {counted(self.tensor.hidden, 'column')}", "parked"))
        self.heading.set(title=title, note=paint_phases(frame, self.size.width))
