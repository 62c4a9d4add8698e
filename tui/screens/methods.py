"""The choice of a method."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from engine.config.methods import METHODS
from tui.widgets.section import Heading


class MethodScreen(ModalScreen[str | None]):
    """Closes with the method's name, or None."""

    DEFAULT_CSS = """
    MethodScreen { align: center middle; background: $background 60%; }
    MethodScreen > Vertical {
        width: 84; max-width: 96%; height: auto; max-height: 90%;
        background: $background; border: round $line-rule; padding: 0 1;
    }
    MethodScreen OptionList {
        height: auto; max-height: 16; background: $background; border: none; padding: 1 0;
    }
    MethodScreen OptionList:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,m,q", "close", "close")]

    def __init__(self, current: str, goes_on: bool = False) -> None:
        super().__init__()
        self._current = current
        when = "from the next round on" if goes_on else "start again with"
        self._title = f"method: {when}"

    def compose(self) -> ComposeResult:
        options = [
            Option(
                Content.assemble(
                    ("● " if name == self._current else "  "),
                    (f"{name:<16}", "bold"),
                    Content(info.description),
                ),
                id=name,
            )
            for name, info in METHODS.items()
        ]
        with Vertical():
            yield Heading([(self._title, "title")])
            yield OptionList(*options)

    def on_mount(self) -> None:
        choices = self.query_one(OptionList)
        if self._current in METHODS:
            choices.highlighted = list(METHODS).index(self._current)
        choices.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_close(self) -> None:
        self.dismiss(None)
