"""Small questions over the screen: one of a list, or a line of text."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from tui.view.showable import showable
from tui.widgets.section import Heading


class Choice(NamedTuple):
    """One of a list."""

    id: str
    label: str
    help: str = ""


class ChooseScreen(ModalScreen[str | None]):
    """Closes with the id of what was chosen, or None."""

    DEFAULT_CSS = """
    ChooseScreen { align: center middle; background: $background 60%; }
    ChooseScreen > Vertical {
        width: 76; max-width: 96%; height: auto; max-height: 90%;
        background: $background; border: round $line-rule; padding: 0 1;
    }
    ChooseScreen OptionList {
        height: auto; max-height: 18; background: $background; border: none; padding: 1 0;
    }
    ChooseScreen OptionList:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "close")]

    def __init__(self, title: str, choices: list[Choice]) -> None:
        super().__init__()
        self._title = title
        self._choices = choices

    def compose(self) -> ComposeResult:
        width = max([20, *(cell_len(choice.label) + 2 for choice in self._choices)])
        options = [
            Option(
                Content.assemble(
                    (f"  {choice.label.ljust(width)}", "bold"), Content(showable(choice.help))
                ),
                id=choice.id,
            )
            for choice in self._choices
        ]
        with Vertical():
            yield Heading([(self._title, "title")])
            yield OptionList(*options)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_close(self) -> None:
        self.dismiss(None)


class AskScreen(ModalScreen[str | None]):
    """A line at the foot of the screen. Closes with the text, or None."""

    DEFAULT_CSS = """
    AskScreen { align: center bottom; background: $background 0%; }
    AskScreen > Vertical {
        width: 100%; height: auto; background: $background; padding: 0 1;
    }
    AskScreen Input {
        border: none; height: 1; padding: 0; background: $background;
    }
    AskScreen Input:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "close")]

    def __init__(self, title: str, note: str = "", value: str = "") -> None:
        super().__init__()
        self._title = title
        self._note = note
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Heading([(self._title, "title")])
            yield Input(self._value)

    def on_mount(self) -> None:
        self.query_one(Heading).set(note=[(f" {self._note} ", "dim")] if self._note else [])
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_close(self) -> None:
        self.dismiss(None)
