"""The main screen with the tour's panel in it, and the list of stops."""

from __future__ import annotations

import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tui.screens.main import PANES, MainScreen
from tui.session.control import Control
from tui.session.playhead import Playhead
from tui.tour.guide import Guide, State
from tui.tour.panel import TourPanel
from tui.tour.source import LiveTour, RecordedTour, TourSource
from tui.widgets.keys import bindings
from tui.widgets.section import Heading


class TourScreen(MainScreen):
    """Every key of the main screen, and those of the tour."""

    DEFAULT_CSS = """
    TourScreen #lower { min-height: 3; }
    TourScreen.-tiny TourPanel { height: 4; }
    TourScreen.-tiny TourPanel.-left { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("tour")]

    def __init__(self, control: Control, playhead: Playhead, guide: Guide | None = None) -> None:
        super().__init__(control, playhead)
        self.guide = guide or Guide()
        self.base = control.settings
        self.panel = TourPanel(self.guide, id="tour")
        playhead.following = False

    def compose(self) -> ComposeResult:
        for widget in super().compose():
            yield widget
            if widget.id == "tensor-section":
                yield self.panel

    @property
    def source(self) -> TourSource:
        source = self.control.source
        assert isinstance(source, LiveTour | RecordedTour)
        return source

    def tell_source(self) -> None:
        """Show that the runs are recorded ones, and why. What needs an engine is then refused."""
        source = self.source
        if isinstance(source, LiveTour) and source.why:
            source = self.control.source = source.instead()
        self.panel.why = source.why

    def reserved(self) -> int:
        """Lines that the panel takes from the tensor's room where the screen is small."""
        return 3 if self.size.height < 30 and self.guide.state is not State.LEFT else 0

    def tick(self) -> None:
        """Go on with the tour, unless something lies over it."""
        super().tick()
        self.tell_source()
        if self.app.screen is self:
            guide, playhead = self.guide, self.playhead
            before = (guide.state, guide.scene)
            source = self.source
            guide.tick(time.monotonic(), self.control, playhead, self.base, source.answers)
            if (guide.state, guide.scene) != before:
                self._show_stop()
            self.show_frame()
        self._show_panel()

    def _show_stop(self) -> None:
        """Select what the stop is about."""
        guide = self.guide
        scene, moment = guide.scene, guide.moment_now
        if scene is None:
            return
        self.selected = scene.spot.row
        self.mode = moment.mode
        if self.pane != PANES.index(moment.pane):
            self.choose_pane(PANES.index(moment.pane))

    def _show_panel(self) -> None:
        panel, guide, source = self.panel, self.guide, self.source
        panel.at_stop = guide.is_at_stop(self.control, self.playhead.cursor)
        panel.rounds = self.control.timeline.last
        name = self.control.timeline.pair.name
        panel.note = f"live · {name}" if source.live else f"recorded · {name}"
        left = guide.state is State.LEFT
        if panel.has_class("-left") != left:
            panel.set_class(left, "-left")
            self.call_after_refresh(self.fit_tensor)
        panel.repaint()

    def action_next_stop(self) -> None:
        if not self.guide.next():
            live = "b compares, f breaks things, m takes any method."
            self.notify(
                "The tour is over: " + (live if self.source.live else "S goes back to any.")
            )
        self._show_panel()

    def action_previous_stop(self) -> None:
        if not self.guide.previous():
            self.guide.back()
        self._show_panel()

    def action_tour(self) -> None:
        """Leave the tour, or come back to its stop."""
        guide = self.guide
        if guide.is_at_stop(self.control, self.playhead.cursor):
            guide.leave()
        else:
            guide.back()
        self._show_panel()

    def action_stops(self) -> None:
        def chosen(stop: int | None) -> None:
            if stop is not None:
                self.guide.go(stop, self.guide.moment if stop == self.guide.stop else 0)
                self._show_panel()

        self.app.push_screen(StopsScreen(self.guide), chosen)


class StopsScreen(ModalScreen[int | None]):
    """Closes with the stop's number, or None."""

    DEFAULT_CSS = """
    StopsScreen { align: center middle; background: $background 60%; }
    StopsScreen > Vertical {
        width: 60; max-width: 96%; height: auto; max-height: 90%;
        background: $background; border: round $line-rule; padding: 0 1;
    }
    StopsScreen OptionList {
        height: auto; max-height: 16; background: $background; border: none; padding: 1 0;
    }
    StopsScreen OptionList:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,S,q", "close", "close")]

    def __init__(self, guide: Guide) -> None:
        super().__init__()
        self._guide = guide

    def compose(self) -> ComposeResult:
        options = [
            Option(
                Content.assemble(
                    "● " if place == self._guide.stop else "  ",
                    (f"{place + 1}  ", "bold"),
                    Content(stop.title),
                )
            )
            for place, stop in enumerate(self._guide.stops)
        ]
        with Vertical():
            yield Heading([("tour: go to", "title")])
            yield OptionList(*options)

    def on_mount(self) -> None:
        choices = self.query_one(OptionList)
        choices.highlighted = self._guide.stop
        choices.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)

    def action_close(self) -> None:
        self.dismiss(None)
