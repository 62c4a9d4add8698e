"""The lanes of a comparison: each with its batch, its texts and its verdict."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from tui.view.batch.lane import lane_rows, lane_shape, lines_per_row, row_lines
from tui.view.batch.paint_tensor import ZOOMS, paint_ruler
from tui.view.batch.tensor import TensorView
from tui.view.lines import Line, spread
from tui.view.panes.verdict import heading_note, heading_title, verdict_lines
from tui.view.state.compare import LaneFrame
from tui.view.state.frame import Frame
from tui.widgets.pane import Pane
from tui.widgets.panes import RowPicked
from tui.widgets.section import Heading

VERDICT = 3
"""Lines that the verdict has at least: its figures and a sentence or two."""


class LaneFocused(Message):
    """A lane was clicked."""

    def __init__(self, lane: int) -> None:
        super().__init__()
        self.lane = lane


class LanePane(Pane):
    """The rows of one lane."""

    def __init__(self) -> None:
        super().__init__()
        self.look: LaneFrame | None = None
        self.view = TensorView()
        self.zoom: int | None = None
        self.hidden = 0
        self.each = 1

    def give(self, look: LaneFrame, most: int) -> None:
        """Take a new frame; `most`: rows for which there is room."""
        self.look = look
        self.view = lane_rows(look, most, self.size.width or 80)
        self.show(look.frame)

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        if self.look is None:
            return []
        self.each = lines_per_row(len(self.view.rows), height)
        shape = lane_shape(self.view, width, self.zoom, self.hidden)
        lines: list[Line] = []
        for row in self.view.rows:
            lines += row_lines(self.look, self.view, row, shape, self.each)
        return lines

    def ruler(self, width: int) -> Line:
        """The column numbers above the rows."""
        return paint_ruler(self.view, lane_shape(self.view, width, self.zoom, self.hidden))

    def change_zoom(self, step: int) -> None:
        current = self.zoom or lane_shape(self.view, self.size.width, None).zoom
        place = min(range(len(ZOOMS)), key=lambda index: abs(ZOOMS[index] - current))
        self.zoom = ZOOMS[max(0, min(len(ZOOMS) - 1, place + step))]
        self.repaint()

    def pan(self, columns: int) -> None:
        self.hidden = max(0, min(self.hidden - columns, max(0, self.view.end - 1)))
        self.repaint()

    def reveal(self, row: int) -> None:
        """Scroll so that this row can be seen."""
        for place, entry in enumerate(self.view.rows):
            if entry.row == row:
                begin, end = place * self.each, (place + 1) * self.each
                if begin < self.scroll_y:
                    self.scroll_to(y=begin, animate=False)
                elif end > self.scroll_y + self.size.height:
                    self.scroll_to(y=end - self.size.height, animate=False)

    def on_click(self, event: events.Click) -> None:
        place = (event.y + round(self.scroll_y)) // self.each
        if 0 <= place < len(self.view.rows):
            self.post_message(RowPicked(self.view.rows[place].row))


class VerdictPane(Pane):
    """Figures and sentences of one lane."""

    DEFAULT_CSS = "VerdictPane { overflow-y: hidden; }"

    def __init__(self) -> None:
        super().__init__()
        self.look: LaneFrame | None = None

    def give(self, look: LaneFrame) -> None:
        self.look = look
        self.show(look.frame)

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        return verdict_lines(self.look, width, height) if self.look is not None else []


class LaneRuler(Pane):
    """The names of the figures, and the columns."""

    DEFAULT_CSS = "LaneRuler { height: 1; overflow-y: hidden; }"

    def __init__(self, rows: LanePane) -> None:
        super().__init__()
        self._rows = rows

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        return [self._rows.ruler(width)]


class LaneHeading(Heading):
    """A thin rule; that of the focused lane is brighter."""

    def __init__(self) -> None:
        super().__init__([])
        self.focused = False

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        rule = "edge" if self.focused else "rule"
        left: Line = [("─ ", rule), *self._title, (" ", rule)]
        return [spread(left, [*self._note, ("─", rule)], width, ("─", rule))]


class LaneView(Vertical):
    """One lane: heading, ruler, rows, verdict."""

    DEFAULT_CSS = """
    LaneView { width: 1fr; height: 1fr; background: $background; }
    """

    def __init__(self, lane: int) -> None:
        super().__init__(id=f"lane-{lane}")
        self.lane = lane
        self.look: LaneFrame | None = None
        self._seen: tuple[object, ...] = ()
        self.heading = LaneHeading()
        self.rows = LanePane()
        self.ruler = LaneRuler(self.rows)
        self.verdict = VerdictPane()

    def compose(self) -> ComposeResult:
        yield self.heading
        yield self.ruler
        yield self.rows
        yield self.verdict

    def give(self, look: LaneFrame) -> None:
        """Take a new frame of this lane, unless it shows what is there already."""
        timeline, match = look.frame.timeline, look.match
        seen = (
            look._replace(moved=True),
            timeline.last if look.frame.cursor.round < timeline.last else timeline.revision,
            len(match.divergences),
            match.oracle.tolerance,
            self.size,
        )
        if seen == self._seen:
            return
        self._seen = seen
        self.look = look
        self.rows.give(look, max(1, (self.size.height - 1 - VERDICT) // 2))
        self._share(len(self.rows.view.rows))
        self.ruler.show(look.frame)
        self.verdict.give(look)
        self.heading.focused = look.focused
        self.heading.set(heading_title(look), heading_note(look, self.size.width))

    def _share(self, count: int) -> None:
        """Give the rows what they need, and the verdict the rest, of the lane's height."""
        room = self.size.height - 1
        ruler = room - 1 - count * 2 >= VERDICT
        room -= ruler
        each = lines_per_row(count, room - VERDICT) if count else 1
        wanted = max(1, min(count * each, room - min(VERDICT, room // 3)))
        if self.ruler.display != ruler:
            self.ruler.display = ruler
        height = self.rows.styles.height
        if height is None or height.value != wanted:
            self.rows.styles.height = wanted

    def on_click(self) -> None:
        self.post_message(LaneFocused(self.lane))
