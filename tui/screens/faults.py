"""The fault lab: what can be done wrong, what it breaks, and who has met it."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from engine.config.faults import FAULTS, Fault
from tui.screens.run import RunScreen
from tui.session.fault_lab import METHOD, FaultLab, RestartingSource
from tui.view.lines import Line, wrap
from tui.view.showable import showable
from tui.view.state.frame import Frame
from tui.widgets.pane import Pane
from tui.widgets.section import Heading

BROKEN = {
    "I1": "the rectangle: p + c = L, and the smallest p is 0",
    "I2": "the positions: 0, 1, 2, … without hole or repeat",
    "I3": "the cache: exactly the committed tokens but the last",
    "I4": "the mask: a row's own content up to itself",
    "I5": "the commit: every token is the target's own choice",
}
WIDE = 100


def fault_lines(
    fault: Fault, on: bool, live: bool, width: int, *, read_only: bool = False
) -> list[Line]:
    """All that there is to say about one fault; `read_only`: it cannot be switched here."""
    title = [(fault.title, "strong"), ("  is on" if on else "", "broken")]
    lines = [*wrap(title, width), [], *wrap([(fault.text, "text")], width), []]
    for place, name in enumerate(fault.breaks):
        words = wrap([(BROKEN[name], "quiet")], max(10, width - 12))
        for at, line in enumerate(words):
            head = ("breaks  " if place == 0 else "        ") if at == 0 else " " * 12
            mark = [(f"{name}  ", "broken")] if at == 0 else []
            lines.append([(head, "dim"), *mark, *line])
    if fault.reports:
        lines += [[], [("Met by others", "dim")]]
        for report in fault.reports:
            words = wrap([(showable(f"{report.project} {report.number}"), "text"),
                          (f"  {showable(report.what)}", "dim")], width)  # fmt: skip
            lines += words
    if read_only:
        return lines
    lines.append([])
    if on:
        switch = "off: the run goes back to where it was before"
    elif live:
        switch = "on from the next round; the rows are prefilled again"
    else:
        switch = "on: eqspec begins again from the prompts"
    lines += wrap([("enter ", "key"), (f"switches it {switch}.", "dim")], width)
    return lines


class FaultPane(Pane):
    """The fault that is looked at."""

    def __init__(self, current: str, live: bool, read_only: bool) -> None:
        super().__init__(id="fault")
        self._read_only = read_only
        self.fault = next(iter(FAULTS.values()))
        self._current = current
        self._live = live

    def look_at(self, fault: Fault) -> None:
        self.fault = fault
        self.scroll_to(y=0, animate=False)
        self.repaint()

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        on = self.fault.name == self._current
        return fault_lines(self.fault, on, self._live, width, read_only=self._read_only)


class FaultScreen(ModalScreen[str | None]):
    """Closes with the fault's name, to be switched on or off, or None."""

    DEFAULT_CSS = """
    FaultScreen { align: center middle; background: $background 60%; }
    FaultScreen > Vertical {
        width: 112; max-width: 98%; height: 24; max-height: 96%;
        background: $background; border: round $line-rule; padding: 0 1;
    }
    FaultScreen #body { height: 1fr; layout: horizontal; }
    FaultScreen OptionList {
        width: 44; height: 1fr; background: $background; border: none; padding: 1 0;
        margin-right: 2;
    }
    FaultScreen OptionList:focus { border: none; }
    FaultScreen #fault { padding: 1 0; }
    FaultScreen.-narrow {
        #body { layout: vertical; }
        OptionList { width: 1fr; height: 8; padding: 0; margin-right: 0; }
        #fault { height: 1fr; padding: 0; border-top: solid $line-rule; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f,q", "close", "close")]

    def __init__(self, current: str, live: bool, *, read_only: bool = False) -> None:
        super().__init__()
        self._current = current
        self._read_only = read_only
        self.pane = FaultPane(current, live, read_only)

    def compose(self) -> ComposeResult:
        options = [
            Option(
                Content.assemble(
                    ("● " if name == self._current else "  "),
                    (f"{' '.join(fault.breaks[:1]):<4}", "dim"),
                    Content(fault.title),
                ),
                id=name,
            )
            for name, fault in FAULTS.items()
        ]
        with Vertical():
            yield Heading([("fault lab", "title"), ("  eqspec with one thing done wrong", "dim")])
            with Container(id="body"):
                yield OptionList(*options)
                yield self.pane

    def on_mount(self) -> None:
        switch: Line = [] if self._read_only else [(" enter", "key"), (" on or off", "dim")]
        self.query_one(Heading).set(note=[*switch, ("  esc ", "key"), ("closes ", "dim")])
        choices = self.query_one(OptionList)
        names = list(FAULTS)
        choices.highlighted = names.index(self._current) if self._current in names else 0
        choices.focus()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(self.app.size.width < WIDE, "-narrow")

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if event.option_id in FAULTS:
            self.pane.look_at(FAULTS[event.option_id])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_close(self) -> None:
        self.dismiss(None)


def _read_only(screen: RunScreen) -> None:
    """The known mistakes over a recorded run, to be read; the one that was recorded is marked."""
    record = screen.frame_now().record
    current = record.fault if record is not None else ""

    def chosen(name: str | None) -> None:
        if name is not None:
            screen.notify("A recorded run cannot be given a fault.", timeout=3)

    screen.app.push_screen(FaultScreen(current, False, read_only=True), chosen)


def open_fault_lab(screen: RunScreen) -> None:
    """Show the lab over a screen, and switch what is chosen there."""
    control = screen.control
    source = control.source
    if not isinstance(source, RestartingSource):
        _read_only(screen)
        return
    if control.settings.strict:
        screen.notify("The fault lab needs a rectangle that moves: run without --strict.")
        return
    lab = screen.lab = screen.lab or FaultLab(control, source)

    def chosen(name: str | None) -> None:
        if name is None:
            return
        fault = FAULTS[name]
        if lab.can_switch():
            off = lab.fault == name
            lab.switch(name)
            words = "is off: back to before it went on" if off else "is on from the next round"
            screen.playhead.follow(screen.last)
        else:
            screen.begin_again(method=METHOD, fault=name)
            words = f"is on; {METHOD} begins again"
        screen.notify(f"{fault.title} {words}", title="fault lab", timeout=4, markup=False)
        screen.show_frame()

    screen.app.push_screen(FaultScreen(lab.fault, lab.can_switch()), chosen)
