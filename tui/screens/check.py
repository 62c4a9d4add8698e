"""Another engine's tokens against the oracle: the rows, and where each one first differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from engine.evaluation.check.outputs import Foreign
from engine.records.schema import Failure
from engine.runs.worker import Progress, State
from tui.screens.ask import AskScreen
from tui.screens.loading import LoadingPane
from tui.screens.run import RunScreen
from tui.session.check import CheckingSource, CheckSource
from tui.session.control import Control
from tui.view.lines import Line
from tui.view.panes.check import Entry, detail_lines, entries, entry_line, head_line, summary_lines
from tui.view.showable import showable
from tui.view.state.checked import Checked
from tui.view.state.frame import Frame
from tui.widgets.pane import Pane
from tui.widgets.section import Heading
from tui.widgets.styles import palette_of

RATE = 15
HINT = " ↑ ↓ row  ⏎ the two texts  d D next that differs  esc closes "


def _nothing(width: int) -> list[Line]:
    return []


class LinesPane(Pane):
    """Lines that a function makes for a width."""

    DEFAULT_CSS = "LinesPane { height: auto; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines_of: Callable[[int], list[Line]] = _nothing

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        return self.lines_of(width)


class RowList(OptionList):
    """The rows; their lines are made anew for each width."""

    class Resized(Message):
        """There is another width to fill."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())


class CheckScreen(Screen[str | None]):
    """Runs the check that a control holds, and shows it. Closes with what went wrong, or None."""

    DEFAULT_CSS = """
    CheckScreen { background: $background; }
    CheckScreen #found { display: none; height: 1fr; }
    CheckScreen.-done #found { display: block; }
    CheckScreen.-done LoadingPane { display: none; }
    CheckScreen #summary { height: 4; margin: 0 1; }
    CheckScreen #head { height: 1; margin: 0 1; }
    CheckScreen OptionList {
        height: 1fr; background: $background; border: none; padding: 0 1;
    }
    CheckScreen OptionList:focus { border: none; background-tint: $background 0%; }
    CheckScreen OptionList:focus > .option-list--option-highlighted {
        background: $line-rule; text-style: none;
    }
    CheckScreen OptionList > .option-list--option { padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "close, or give it up"),
        Binding("d", "next_different(1)", "next row that differs"),
        Binding("D", "next_different(-1)", "the one before"),
        Binding("j", "row(1)", "row below"),
        Binding("k", "row(-1)", "row above"),
    ]

    def __init__(self, control: Control) -> None:
        super().__init__()
        assert isinstance(control.source, CheckSource), "the control of a check"
        self.control = control
        self.source = control.source
        self.heading = Heading([("check", "title"), (f"  {showable(self.source.name)}", "dim")])
        self.loading_pane = LoadingPane(self.source.name, "check")
        self.rows: list[Entry] = []

    def compose(self) -> ComposeResult:
        yield self.heading
        yield self.loading_pane
        with Vertical(id="found"):
            yield LinesPane(id="summary")
            yield LinesPane(id="head")
            yield RowList()

    def on_mount(self) -> None:
        self.heading.set(note=[(" esc gives it up ", "dim")])
        self._timer = self.set_interval(1 / RATE, self._look)

    def _look(self) -> None:
        """What the thread is at; once it has ended, what it has found."""
        worker = self.control.worker
        state = worker.state
        if not state.ended:
            self.loading_pane.report(*worker.stage)
            return
        self._timer.stop()
        found = self.source.found
        if found is not None and state is State.FINISHED:
            self._show(found)
            return
        records = worker.history.since(0)
        message = [record.message for record in records if isinstance(record, Failure)]
        self.dismiss(message[-1] if message else "the check was stopped")

    def _show(self, found: Checked) -> None:
        self.rows = entries(found)
        self.add_class("-done")
        self.heading.set(note=[(HINT if self.size.width >= 100 else " ⏎ texts  esc ", "dim")])
        summary = self.query_one("#summary", LinesPane)
        summary.lines_of = lambda width: summary_lines(found, width)
        summary.styles.height = len(summary_lines(found, 80)) + 1
        self.query_one("#head", LinesPane).lines_of = lambda width: [head_line(width)]
        self.query_one(OptionList).focus()
        self._fill()

    def _fill(self) -> None:
        """The rows at the present width; the one that was looked at stays."""
        found = self.source.found
        choices = self.query_one(OptionList)
        width = choices.scrollable_content_region.width
        if found is None or width <= 0:
            return
        place = choices.highlighted or 0
        choices.clear_options()
        palette = palette_of(self.app.theme_variables)
        for entry in self.rows:
            line = entry_line(entry, found.tokenizer.piece, width)
            text = Text(no_wrap=True)
            for part, name in line:
                style = palette[name]
                text.append(part, style.from_color(style.color) + style.without_color)
            choices.add_option(Option(text))
        choices.highlighted = place
        for pane in self.query(LinesPane):
            pane.repaint()

    def on_row_list_resized(self) -> None:
        self._fill()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if self.source.found is not None and self.rows:
            self.app.push_screen(TextsScreen(self, event.option_index))

    def choose(self, place: int) -> int:
        """Look at another row. Returns which one it is."""
        place = max(0, min(len(self.rows) - 1, place))
        self.query_one(OptionList).highlighted = place
        return place

    def different(self, place: int, step: int) -> int:
        """The next row that differs, or this one where there is none."""
        wanted = range(place + step, len(self.rows) if step > 0 else -1, step)
        return next((at for at in wanted if self.rows[at].cause is not None), place)

    def action_next_different(self, step: int) -> None:
        self.choose(self.different(self.query_one(OptionList).highlighted or 0, step))

    def action_row(self, step: int) -> None:
        self.choose((self.query_one(OptionList).highlighted or 0) + step)

    def action_leave(self) -> None:
        """Close; a check that still goes on is given up, and not waited for."""
        self.control.stop()
        self.dismiss(None)


class TextsScreen(ModalScreen[None]):
    """The oracle's text of a row and the file's, over the table."""

    DEFAULT_CSS = """
    TextsScreen { align: center middle; background: $background 60%; }
    TextsScreen > Vertical {
        width: 100%; max-width: 112; height: 100%; max-height: 34;
        background: $background; border: round $line-rule; padding: 0 1;
    }
    TextsScreen LinesPane { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "close", "close"),
        Binding("up,k", "row(-1)", "row above"),
        Binding("down,j", "row(1)", "row below"),
        Binding("d", "next_different(1)", "next row that differs"),
        Binding("D", "next_different(-1)", "the one before"),
        Binding("pagedown", "scroll(1)", "further down"),
        Binding("pageup", "scroll(-1)", "up again"),
    ]

    def __init__(self, below: CheckScreen, place: int) -> None:
        super().__init__()
        self._below = below
        self._place = place
        self.heading = Heading([])
        self.pane = LinesPane()

    def compose(self) -> ComposeResult:
        with Vertical():
            yield self.heading
            yield self.pane

    def on_mount(self) -> None:
        self.heading.set(note=[(" ↑ ↓ row  d D differs  esc closes ", "dim")])
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        found, entry = self._below.source.found, self._below.rows[self._place]
        assert found is not None, "texts are shown of what was found"
        where = f" · new token {entry.cause.position}" if entry.cause is not None else " · exact"
        self.heading.set([(f"row {entry.row}", "title"), (where, "dim")])
        self.pane.lines_of = lambda width: detail_lines(found, entry.row, width)
        self.pane.scroll_to(y=0, animate=False)
        self.pane.repaint()

    def _go(self, place: int) -> None:
        self._place = self._below.choose(place)
        self._show()

    def action_row(self, step: int) -> None:
        self._go(self._place + step)

    def action_next_different(self, step: int) -> None:
        self._go(self._below.different(self._place, step))

    def action_scroll(self, step: int) -> None:
        self.pane.scroll_relative(y=step * max(1, self.pane.size.height - 2), animate=False)

    def action_close(self) -> None:
        self.dismiss()


NOTE = "a .jsonl of token ids, a trace, or what run --json wrote"


def open_check(screen: RunScreen) -> None:
    """Ask for the file, and check it with the target of the run, which holds meanwhile."""
    main = screen.control
    source = main.source
    if not isinstance(source, CheckingSource):
        screen.notify("No model is loaded here: use `batchspec-tui check FILE --tui`.", timeout=4)
        return

    def named(text: str | None) -> None:
        if not text or not text.strip():
            return
        screen.file_to_check = text.strip()
        running = main.worker.running
        main.worker.pause()

        def check(foreign: Foreign, progress: Progress) -> Checked:
            return source.check(foreign, main.settings, progress)

        path = Path(screen.file_to_check).expanduser()
        control = Control(CheckSource(path, check), main.settings, log=main.log)
        control.start()

        def closed(message: str | None) -> None:
            if message is not None:
                screen.notify(message, title="check", severity="warning", timeout=8, markup=False)
            if running:
                main.worker.run()

        screen.app.push_screen(CheckScreen(control), closed)

    screen.app.push_screen(
        AskScreen("check another engine's tokens: which file", NOTE, screen.file_to_check), named
    )
