"""The list of breakpoints: switched on and off, added, deleted."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from engine.config.errors import UserError
from tui.session.breakpoints import Breaking
from tui.view.showable import showable
from tui.widgets.section import Heading

EXAMPLE = 'accept=0 row=3, invariant, finish, diverge, text="foo", …'
KEYS = " space on/off · d delete · a add · esc closes "


class BreakpointsScreen(ModalScreen[None]):
    """Every change is kept at once."""

    DEFAULT_CSS = """
    BreakpointsScreen { align: center middle; background: $background 60%; }
    BreakpointsScreen > Vertical {
        width: 84; max-width: 96%; height: auto; max-height: 90%;
        background: $background; border: round $line-rule; padding: 0 1;
    }
    BreakpointsScreen OptionList {
        height: auto; max-height: 14; background: $background; border: none; padding: 1 0;
    }
    BreakpointsScreen OptionList:focus { border: none; }
    BreakpointsScreen Input { background: $background; border: tall $line-rule; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,B", "close", "close"),
        Binding("space", "switch", "on or off"),
        Binding("d,delete", "remove", "delete"),
        Binding("a", "add", "add"),
    ]

    def __init__(self, breaking: Breaking) -> None:
        super().__init__()
        self.breaking = breaking

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Heading([("breakpoints", "title")])
            yield OptionList()
            yield Input(placeholder=EXAMPLE)

    def on_mount(self) -> None:
        self.query_one(Heading).set(note=[(KEYS, "dim")])
        self.fill()
        if self.breaking.entries:
            self.query_one(OptionList).focus()
        else:
            self.query_one(Input).focus()

    def fill(self, place: int = 0) -> None:
        """Show the list as it is now."""
        choices = self.query_one(OptionList)
        choices.clear_options()
        for entry in self.breaking.entries:
            note = "  for this time only" if entry.given else ""
            choices.add_option(
                Option(
                    Content.assemble(
                        "● " if entry.on else "○ ",
                        (showable(str(entry.point)), "bold" if entry.on else "dim"),
                        (note, "dim"),
                    )
                )
            )
        choices.display = bool(self.breaking.entries)
        if self.breaking.entries:
            choices.highlighted = min(place, len(self.breaking.entries) - 1)

    def _place(self) -> int | None:
        choices = self.query_one(OptionList)
        return choices.highlighted if choices.has_focus else None

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.action_switch()

    def action_switch(self) -> None:
        place = self._place()
        if place is not None:
            self.breaking.toggle(place)
            self.fill(place)

    def action_remove(self) -> None:
        place = self._place()
        if place is None:
            return
        self.breaking.remove(place)
        self.fill(place)
        if not self.breaking.entries:
            self.query_one(Input).focus()

    def action_add(self) -> None:
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        if not event.value.strip():
            return
        try:
            self.breaking.add(event.value)
        except UserError as error:
            self.notify(str(error), severity="warning", timeout=8, markup=False)
            return
        event.input.value = ""
        self.fill(len(self.breaking.entries) - 1)
        self.query_one(OptionList).focus()

    def action_close(self) -> None:
        self.dismiss()
