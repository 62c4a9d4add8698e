"""The inspector: a row's round in full, over the main screen, and moved by the same keys."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from tui.screens.run import RunScreen
from tui.view.lines import Line, wrap
from tui.view.panes.inspect import inspect_lines
from tui.view.showable import showable
from tui.view.state.closeup import CloseUp, close_up, title, waiting_title, waiting_words
from tui.view.state.frame import Frame
from tui.widgets.pane import Pane
from tui.widgets.section import Heading

HINT = " ← → token  ↑ ↓ row  p n round  . , phase  esc closes "
RATE = 10
"""Looks at the cursor a second."""


class InspectPane(Pane):
    """The page."""

    def __init__(self) -> None:
        super().__init__()
        self.look: CloseUp | None = None

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        if self.look is None:
            return wrap([(showable(waiting_words(frame)), "dim")], width)
        return inspect_lines(self.look, width)


class InspectScreen(ModalScreen[None]):
    """Follows the cursor of the screen below."""

    DEFAULT_CSS = """
    InspectScreen { align: center middle; background: $background 60%; }
    InspectScreen > Vertical {
        width: 100%; max-width: 132; height: 100%; max-height: 42;
        background: $background; border: round $line-rule; padding: 0 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "close", "close"),
        Binding("left,h", "token(-1)", "token before"),
        Binding("right,l", "token(1)", "next token"),
        Binding("up,k", "below('select(-1)')", "row above"),
        Binding("down,j", "below('select(1)')", "row below"),
        Binding("n", "below('next_round')", "next round"),
        Binding("p", "below('previous_round')", "previous round"),
        Binding("N,full_stop", "below('next_phase')", "next phase"),
        Binding("P,comma", "below('previous_phase')", "previous phase"),
        Binding("home", "below('first')", "first round"),
        Binding("end", "below('last')", "last round"),
        Binding("space", "below('toggle_run')", "run or pause"),
        Binding("pagedown", "scroll(1)", "further down"),
        Binding("pageup", "scroll(-1)", "up again"),
    ]

    def __init__(self, below: RunScreen, place: int | None = None) -> None:
        super().__init__()
        self._below = below
        self._place = place
        self.heading = Heading([("row", "title")])
        self.pane = InspectPane()

    def compose(self) -> ComposeResult:
        with Vertical():
            yield self.heading
            yield self.pane

    def on_mount(self) -> None:
        self.heading.set(note=[(HINT, "dim")])
        self.set_interval(1 / RATE, self.follow)
        self.call_after_refresh(self.follow)

    def follow(self) -> None:
        """Show the row at the cursor of the screen below."""
        frame = self._below.frame_now()
        look = close_up(frame, self._place)
        if look is not None and look == self.pane.look and frame.timeline.last:
            return
        self.pane.look = look
        self.pane.show(frame)
        heading = waiting_title(frame) if look is None else title(look)
        narrow = self.size.width < 100
        self.heading.set(heading, [(" esc closes " if narrow else HINT, "dim")])

    def action_token(self, step: int) -> None:
        """Look at another token of the row."""
        look = self.pane.look
        if look is not None and look.origin is not None:
            self._place = max(0, look.origin.place + step)
            self.follow()

    async def action_below(self, action: str) -> None:
        """An action of the screen below."""
        if not action.startswith("select"):
            self._place = None
        await self._below.run_action(action)
        self.follow()

    def action_scroll(self, step: int) -> None:
        """Up and down the page, where it is longer than the screen."""
        self.pane.scroll_relative(y=step * max(1, self.pane.size.height - 2), animate=False)

    def action_close(self) -> None:
        self.dismiss()


def open_inspector(screen: RunScreen, place: int | None = None) -> None:
    """Show the selected row's round in full.

    Args:
        place: of the token that is looked at first; None: the one that a search found, if that is
            in this round.
    """
    hit = screen.hits.current if screen.hits is not None else None
    if place is None and hit is not None:
        here = (hit.row, hit.number) == (screen.selected, screen.cursor.round)
        place = hit.place if here else None
    screen.app.push_screen(InspectScreen(screen, place))
