"""The engine broke: what happened, where the traceback is, and what can be done."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from engine.config.counted import counted
from engine.records.schema import Failure
from tui.view.lines import Line, wrap
from tui.view.showable import showable
from tui.view.state.frame import Frame
from tui.widgets.pane import Pane
from tui.widgets.section import Heading


class ErrorPane(Pane):
    def __init__(self, failure: Failure, kept: str) -> None:
        super().__init__()
        self._failure = failure
        self._kept = kept

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        failure = self._failure
        message = showable(failure.message or "unknown error", newlines=True)
        lines: list[Line] = [[], *wrap([(message, "strong")], width), []]
        lines += wrap([(self._kept, "text")], width)
        if failure.log:
            lines.append([])
            lines += wrap([("Traceback: ", "dim"), (showable(failure.log), "text")], width)
        lines.append([])
        wanted = min(len(lines), 14)
        if self.styles.height is None or self.styles.height.value != wanted:
            self.styles.height = wanted
        return lines


class ErrorScreen(ModalScreen[str]):
    """Closes with what is to be done: view, restart or quit."""

    DEFAULT_CSS = """
    ErrorScreen { align: center middle; background: $background 60%; }
    ErrorScreen > Vertical {
        width: 80%; max-width: 84; height: auto; max-height: 90%;
        background: $background; border: round $error; padding: 0 2;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter", "close('view')", "look at what is there"),
        Binding("r", "close('restart')", "start again"),
        Binding("q,ctrl+q", "close('quit')", "quit"),
    ]

    def __init__(self, failure: Failure, rounds: int, tokens: int) -> None:
        super().__init__()
        self._viewable = rounds > 0
        if rounds:
            kept = (
                f"The run broke in round {max(failure.round, rounds) + 1}. "
                f"What was generated is kept: {counted(rounds, 'round')}, "
                f"{counted(tokens, 'token')}."
            )
        elif failure.round:
            kept = f"The run broke in round {failure.round}."
        else:
            kept = "The run broke before its first round."
        self.pane = ErrorPane(failure, kept)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Heading([("the engine stopped", "broken")])
            yield self.pane
            yield _Keys()

    def action_close(self, choice: str) -> None:
        self.dismiss(choice)


class _Keys(Pane):
    DEFAULT_CSS = "_Keys { height: 1; overflow-y: hidden; }"

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        return [
            [
                ("esc", "key"),
                (" look at it   ", "dim"),
                ("r", "key"),
                (" start again   ", "dim"),
                ("q", "key"),
                (" quit", "dim"),
            ]
        ]
