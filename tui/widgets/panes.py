"""The lower panes: texts, cost, method and invariants."""

from __future__ import annotations

from textual import events
from textual.message import Message

from engine.config.counted import counted
from tui.view.lines import Line
from tui.view.panes.cost import cost_lines
from tui.view.panes.invariants import invariants_lines, rows_note
from tui.view.panes.method import method_lines, method_note, method_title
from tui.view.panes.texts import texts_lines, visible_rows
from tui.view.state.frame import Frame
from tui.widgets.pane import Pane
from tui.widgets.section import Section


class RowPicked(Message):
    """A row was clicked."""

    def __init__(self, row: int) -> None:
        super().__init__()
        self.row = row


class TextsPane(Pane):
    """Every row's text."""

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        return texts_lines(frame, width, height)

    def show(self, frame: Frame) -> None:
        moved = frame.selected != self.frame.selected
        super().show(frame)
        rows = visible_rows(frame)
        if moved and frame.selected in rows:
            height = self._room()[1]
            extra = len(self._lines) - len(rows)
            first = rows.index(frame.selected)
            if first < self.scroll_y:
                self.scroll_to(y=first, animate=False)
            elif first + extra >= self.scroll_y + height:
                self.scroll_to(y=first + extra - height + 1, animate=False)

    def on_click(self, event: events.Click) -> None:
        place = event.y + round(self.scroll_y)
        rows = visible_rows(self.frame)
        if not rows or place >= len(self._lines):
            return
        chosen = self.frame.selected if self.frame.selected in rows else rows[0]
        at = rows.index(chosen)
        extra = len(self._lines) - len(rows)
        if place > at:
            place = max(at, place - extra)
        if 0 <= place < len(rows):
            self.post_message(RowPicked(rows[place]))


class CostPane(Pane):
    """Cost per round."""

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        return cost_lines(frame, width, height)


class MethodPane(Pane):
    """What is particular to the method."""

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        return method_lines(frame, width, height)


class InvariantsPane(Pane):
    """What must hold, and whether it does."""

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        return invariants_lines(frame, width, height)


class MethodSection(Section):
    """The method pane under a heading that names what it shows."""

    def show(self, frame: Frame) -> None:
        note = method_note(frame)
        self.heading.set([(method_title(frame), "title")], [(note, "dim")] if note else [])
        super().show(frame)


class TextsSection(Section):
    """The texts under a heading that says how far they have come."""

    def show(self, frame: Frame) -> None:
        tokens = frame.timeline.tokens_at(frame.committed_round)
        record = frame.record
        queued = f"· {record.queued} queued " if record is not None and record.queued else ""
        self.heading.set(note=[(f" {counted(tokens, 'token')} {queued}", "dim")])
        super().show(frame)


class InvariantsSection(Section):
    """The invariants under a heading that counts the finished rows."""

    def show(self, frame: Frame) -> None:
        self.heading.set(note=rows_note(frame))
        super().show(frame)
