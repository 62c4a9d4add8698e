"""The main screen: status, tensor, texts, cost, method and invariants."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from engine.runs.worker import State
from tui.screens.run import RunScreen
from tui.session.control import Control
from tui.session.fault_lab import RestartingSource
from tui.session.playhead import Playhead
from tui.view.state.frame import Frame
from tui.widgets.keybar import KeyBar
from tui.widgets.keys import bindings
from tui.widgets.panes import (
    CostPane,
    InvariantsPane,
    InvariantsSection,
    MethodPane,
    MethodSection,
    RowPicked,
    TextsPane,
    TextsSection,
)
from tui.widgets.section import Section
from tui.widgets.status import StatusBar
from tui.widgets.tabs import PaneTabs
from tui.widgets.tensor import TensorSection

RATE = 15
"""Looks at the engine's history a second."""

PANES = ["texts", "cost", "method", "invariants"]


class MainScreen(RunScreen):
    """One lane. It pulls the records, moves the playhead, and shows the frame."""

    DEFAULT_CSS = """
    MainScreen { background: $background; }
    MainScreen #lower { height: 1fr; min-height: 5; }
    MainScreen #texts { width: 5fr; margin-right: 2; }
    MainScreen #cost { width: 4fr; margin-right: 2; }
    MainScreen #side { width: 4fr; }
    MainScreen #invariants { height: 6; }
    MainScreen #tensor-section { height: 16; }
    MainScreen.-wide #side { layout: horizontal; width: 8fr; }
    MainScreen.-wide #method { margin-right: 2; width: 4fr; }
    MainScreen.-wide #invariants { height: 1fr; width: 4fr; }
    MainScreen.-narrow, MainScreen.-tiny {
        PaneTabs { display: block; }
        StatusBar { height: 2; }
        #lower { layout: vertical; }
        #texts, #cost, #side, #method, #invariants {
            width: 1fr; height: 1fr; margin-right: 0; display: none;
        }
        #texts.-current, #cost.-current, #side.-current, #method.-current,
        #invariants.-current { display: block; }
        #lower Heading { display: none; }
    }
    MainScreen.-tiny StatusBar { height: 1; }
    """
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - never changed
        (0, "-tiny"),
        (60, "-narrow"),
        (100, "-normal"),
        (150, "-wide"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("main")]

    def __init__(self, control: Control, playhead: Playhead) -> None:
        super().__init__(control, playhead)
        self._seen: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield StatusBar(id="status")
        yield TensorSection(id="tensor-section")
        yield PaneTabs(PANES)
        with Horizontal(id="lower"):
            yield TextsSection("texts", TextsPane(), id="texts")
            yield Section("cost per round", CostPane(), id="cost")
            with Vertical(id="side"):
                yield MethodSection("method", MethodPane(), id="method")
                yield InvariantsSection("invariants", InvariantsPane(), id="invariants")
        yield KeyBar("main" if self.control.source.live else "replay")

    def on_mount(self) -> None:
        self.choose_pane(0)
        self.set_interval(1 / RATE, self.tick)
        self.call_after_refresh(self.show_frame)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.fit_tensor)

    def fit_tensor(self) -> None:
        """As tall as the batch needs, and never so tall that the lower panes are lost."""
        timeline = self.control.timeline
        size = timeline.setting_at(timeline.last + 1, "batch_size", 4)
        rows = min(size if isinstance(size, int) else 4, max(1, len(timeline.tracks)))
        height = self.size.height
        low = 5 if height < 20 else 8 if height < 30 else 12
        low += self.reserved()
        room = max(3, height - low - (3 if self.size.width < 100 else 2))
        each = next((each for each in (3, 2) if rows * each + 2 <= room), 1)
        wanted = min(room, rows * each + 2)
        section = self.query_one("#tensor-section")
        if section.styles.height is None or section.styles.height.value != wanted:
            section.styles.height = wanted
        self._seen = ()
        self.call_after_refresh(self.show_frame)

    def reserved(self) -> int:
        """Lines that something else takes from the tensor's room."""
        return 0

    def tick(self) -> None:
        """Take in what is new and move on."""
        control = self.control
        header = control.timeline.header
        fresh = control.take()
        if control.timeline.header is not header:
            self.fit_tensor()
        last = control.timeline.last
        running = control.state is State.RUNNING and control.worker.running
        moved = self.playhead.tick(time.monotonic(), last, running)
        if fresh or moved or self._seen[:1] != (control.state,):
            self.show_frame()
        self.show_messages()
        self.tell_hold()
        failure = control.timeline.failure
        if failure is not None and not control.failed:
            control.failed = True
            self.report_failure(failure)

    def frame_now(self) -> Frame:
        """What all panes show."""
        playhead = self.playhead
        timeline = self.control.timeline
        selected = self.selected
        record = timeline.round_at(playhead.cursor.round)
        if selected is None and record is not None and record.rows:
            selected = record.rows[0].row
        elif selected is None and timeline.tracks:
            selected = min(timeline.tracks)
        return Frame(
            timeline=timeline,
            cursor=playhead.cursor,
            selected=selected,
            mode=self.mode,
            slide=playhead.slide,
            animated=playhead.animating,
            busy=self.control.state in (State.RUNNING, State.LOADING),
            fault_next=self._fault_next(),
        )

    def _fault_next(self) -> str | None:
        """What the fault lab has switched on or off, though no round shows it yet."""
        control = self.control
        return control.settings.fault if isinstance(control.source, RestartingSource) else None

    def show_frame(self) -> None:
        """Give the frame to every pane, unless nothing changed."""
        state = self.control.state
        playhead = self.playhead
        frame = self.frame_now()
        bar = (state, self.control.speed, playhead.following, self.count, playhead.playing)
        timeline = frame.timeline
        looked = (frame.cursor, frame.selected, frame.mode, frame.slide, timeline, frame.busy)
        known = (*looked, frame.fault_next)
        parked = timeline.revision if playhead.following else timeline.last
        seen = (*bar, known, parked, self.pane)
        if seen == self._seen:
            return
        same = self._seen[5:6] == (known,) and self._seen[6:] == (parked, self.pane)
        self._seen = seen
        status = self.query_one(StatusBar)
        status.state = self._state_word(state)
        status.speed = self.control.speed
        status.following = playhead.following
        status.count = self.count
        status.show(frame)
        if same:
            return
        self.query_one(TensorSection).show(frame)
        self.query_one(PaneTabs).show(frame)
        for section in self.query(Section):
            if not isinstance(section, TensorSection) and section.display:
                section.show(frame)

    def _state_word(self, state: State) -> str:
        """What the status line says of it: a recording is not a run that is over."""
        if self.playhead.playing:
            return State.RUNNING.value
        recorded = not self.control.source.live and state is State.FINISHED
        return "replay" if recorded else state.value

    def choose_pane(self, index: int) -> None:
        """Which of the lower panes a small screen shows."""
        self.pane = index % len(PANES)
        for place, name in enumerate(PANES):
            self.query_one(f"#{name}").set_class(place == self.pane, "-current")
        self.query_one("#side").set_class(self.pane >= 2, "-current")
        tabs = self.query_one(PaneTabs)
        tabs.current = self.pane
        tabs.repaint()
        self._seen = ()
        self.call_after_refresh(self.show_frame)

    @on(PaneTabs.Picked)
    def _pane_picked(self, event: PaneTabs.Picked) -> None:
        self.choose_pane(event.index)

    @on(RowPicked)
    def _row_picked(self, event: RowPicked) -> None:
        self.selected = event.row
        self.show_frame()
