"""The comparison: up to four methods on the same prompts, side by side."""

from __future__ import annotations

import time
from typing import ClassVar

from msgspec.structs import replace
from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from engine.config.errors import UserError
from engine.config.settings import Settings
from engine.runs.worker import State
from tui.screens.methods import MethodScreen
from tui.screens.run import RunScreen
from tui.session.compare import CompareControl, ComparingSource, lane_settings, under
from tui.session.control import Control
from tui.session.playhead import Playhead
from tui.view.panes.verdict import rates
from tui.view.state.compare import Comparison, LaneFrame, lane_frame
from tui.view.state.frame import Frame
from tui.widgets.compare import CompareBar, LaneTabs
from tui.widgets.keybar import KeyBar
from tui.widgets.keys import bindings
from tui.widgets.lanes import LaneFocused, LaneView
from tui.widgets.panes import RowPicked

RATE = 15
WIDE, TALL = 110, 52
"""From this width on two lanes lie side by side; below it, from this height on, all stacked."""


class CompareScreen(RunScreen):
    """Lanes over one cursor. It pulls the records and shows each lane its frame."""

    DEFAULT_CSS = """
    CompareScreen { background: $background; }
    CompareScreen #lanes { height: 1fr; layout: grid; grid-size: 2; grid-gutter: 0 2; }
    CompareScreen.-stacked #lanes { grid-size: 1; }
    CompareScreen LaneTabs { display: none; }
    CompareScreen.-single {
        LaneTabs { display: block; }
        #lanes { layout: vertical; }
        LaneView { display: none; }
        LaneView.-current { display: block; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("main"), *bindings("compare")]
    keys_of = "compare"
    """Which keys are at the foot."""

    def __init__(self, control: CompareControl, playhead: Playhead, resume: bool) -> None:
        super().__init__(control, playhead)
        self.compared = control
        methods = [lane.method for lane in control.lanes.lanes]
        mine = control.settings.method
        self.focus_lane = methods.index(mine) if mine in methods else 0
        self._resume = resume
        """Whether the single run goes on when this screen is left."""
        self._seen: tuple[object, ...] = ()

    @property
    def comparison(self) -> Comparison:
        return self.compared.comparison

    @property
    def last(self) -> int:
        return self.comparison.last

    def compose(self) -> ComposeResult:
        yield CompareBar(self.compared, self.playhead)
        yield LaneTabs()
        with Container(id="lanes"):
            for lane in range(len(self.compared.lanes.lanes)):
                yield LaneView(lane)
        yield KeyBar(self.keys_of)

    def on_mount(self) -> None:
        self.set_interval(1 / RATE, self.tick)
        self.fit()

    def on_resize(self, event: events.Resize) -> None:
        self.fit()

    def fit(self) -> None:
        """Two by two, stacked, or one at a time with tabs."""
        width, height = self.app.size
        self.set_class(width < WIDE and height >= TALL, "-stacked")
        self.set_class(width < WIDE and height < TALL, "-single")
        for view in self.query(LaneView):
            view.set_class(view.lane == self.focus_lane, "-current")
        self._seen = ()
        self.call_after_refresh(self.show_frame)

    def tick(self) -> None:
        """Take in what is new and move on."""
        control = self.compared
        fresh = control.take()
        running = control.state is State.RUNNING and control.worker.running
        moved = self.playhead.tick(time.monotonic(), self.last, running)
        if fresh or moved or self._seen[:1] != (control.state,):
            self.show_frame()
        failure = self.comparison.failure
        if failure is not None and not control.failed:
            control.failed = True
            self.report_failure(failure)

    def looks(self) -> list[LaneFrame]:
        """Every lane at the cursor."""
        comparison, playhead = self.comparison, self.playhead
        return [
            lane_frame(
                comparison,
                lane,
                playhead.cursor,
                focus=self.focus_lane,
                selected=self.selected,
                mode=self.mode,
                slide=playhead.slide,
                busy=self.compared.state in (State.RUNNING, State.LOADING),
            )
            for lane in sorted(comparison.lanes)
        ]

    def frame_now(self) -> Frame:
        looks = self.looks()
        return looks[min(self.focus_lane, len(looks) - 1)].frame if looks else Frame()

    def show_frame(self) -> None:
        """Give each lane its frame, unless nothing changed."""
        playhead, comparison = self.playhead, self.comparison
        following = playhead.following or playhead.cursor.round >= comparison.last
        seen = (
            self.compared.state,
            comparison,
            playhead.cursor,
            playhead.slide,
            playhead.following,
            playhead.playing,
            comparison.revision if following else comparison.last,
            comparison.oracle.tolerance,
            self.compared.speed,
            self.compared.lanes.pace,
            (self.selected, self.mode, self.focus_lane, self.count),
        )
        if seen == self._seen:
            return
        self._seen = seen
        looks = self.looks()
        self.query_one(CompareBar).update_lanes(looks, self.count)
        self.query_one(LaneTabs).update_lanes(looks)
        for view in self.query(LaneView):
            if view.display and view.lane < len(looks):
                view.give(looks[view.lane])

    def lane_view(self) -> LaneView:
        return self.query_one(f"#lane-{self.focus_lane}", LaneView)

    def choose_lane(self, lane: int) -> None:
        """Look at this lane."""
        self.focus_lane = lane % len(self.compared.lanes.lanes)
        self.fit()

    def choose_pane(self, index: int) -> None:
        self.choose_lane(index)

    @on(LaneFocused)
    def _lane_clicked(self, event: LaneFocused) -> None:
        self.choose_lane(event.lane)

    @on(RowPicked)
    def _row_picked(self, event: RowPicked) -> None:
        self.selected = event.row
        self.show_frame()

    def action_cycle_pane(self, step: int) -> None:
        self.choose_lane(self.focus_lane + step)

    def action_zoom(self, step: int) -> None:
        for view in self.query(LaneView):
            view.rows.change_zoom(step)
            view.ruler.repaint()

    def action_pan(self, step: int) -> None:
        count = self.take_count()
        for view in self.query(LaneView):
            view.rows.pan(step * count)
            view.ruler.repaint()

    def action_select(self, step: int) -> None:
        rows = [row.row for row in self.lane_view().rows.view.rows]
        step *= self.take_count()
        if not rows:
            return
        place = rows.index(self.selected) + step if self.selected in rows else 0
        self.selected = rows[max(0, min(len(rows) - 1, place))]
        self.show_frame()
        for view in self.query(LaneView):
            view.rows.reveal(self.selected)

    def action_restart(self) -> None:
        self.take_count()
        self.compared.failed = False
        self.compared.restart()
        self.playhead.follow(0)
        self.show_frame()

    def action_draft_tokens(self, step: int) -> None:
        self.take_count()
        self.notify("K is that of the single run: b goes back to it.", timeout=3)

    def action_choose_method(self) -> None:
        lane = self.focus_lane
        current = self.compared.lanes.lanes[lane]

        def chosen(method: str | None) -> None:
            if method is None:
                return
            settings = under(current, method)
            try:
                settings.check()
            except UserError as error:
                self.notify(str(error), severity="warning", markup=False)
                return
            ended = self.compared.worker.state.ended
            self.compared.change(lane, settings)
            if ended:
                self.playhead.follow(0)
            elif not self.compared.worker.running:
                self.notify(f"{method} begins with the next step.", timeout=3)
            self.show_frame()

        self.app.push_screen(MethodScreen(current.method), chosen)

    def action_next_divergence(self, step: int) -> None:
        """To the step in which the lane's next row (or the one before) diverges."""
        divergences = self.comparison.divergences(self.focus_lane)
        here = (self.playhead.cursor.round, -1 if self.selected is None else self.selected)
        if self.playhead.following:
            here = (0, -1) if step > 0 else (self.last + 1, 0)
        count = self.take_count()
        if step > 0:
            wanted = [one for one in divergences if one > here][:count][-1:]
        else:
            wanted = [one for one in divergences if one < here][-count:][:1]
        if not wanted:
            look = self.looks()[self.focus_lane]
            if look.measure:
                self.notify("The others are compared with this lane: tab goes to them.", timeout=3)
                return
            if look.uncompared and not rates(look)[1]:
                self.notify("Nothing is compared in this lane: its prompts are others.", timeout=4)
                return
            some = "No other row" if divergences else "No row"
            so_far = "" if self.comparison.finished(self.focus_lane) else " so far"
            name = look.match.oracle.name if look.fork is None else ""
            left = f"differs from that of {name}" if name else "diverges"
            words = f"{some} of this lane {left}{so_far}."
            self.notify(words, timeout=3, markup=False)
            return
        tick, self.selected = wanted[0]
        self.playhead.jump(tick, self.last)
        self.show_frame()

    def breaks(self) -> list[tuple[int, int | None]]:
        """Those of the lane, by steps."""
        timeline = self.comparison.take(self.focus_lane).timeline
        ticks = self.comparison.ticks_of(self.focus_lane)
        return [(ticks[at], broken.row) for at, broken in timeline.breaks if at in ticks]

    def action_next_pace(self) -> None:
        self.compared.next_pace()
        self.show_frame()

    def action_compare(self) -> None:
        """Back to the single run."""
        self.take_count()
        self.compared.worker.pause()
        if self._resume:
            self.compared.main.worker.run()
        self.dismiss()

    def action_faults(self) -> None:
        self.notify("The fault lab is in the single run: b goes back to it.", timeout=3)

    def action_fork(self) -> None:
        self.notify("The single run is what can be forked: b goes back to it.", timeout=3)


def open_comparison(screen: RunScreen) -> None:
    """Show the comparison over a screen; it is begun, or goes on."""
    main = screen.control
    source = main.source
    if not isinstance(source, ComparingSource):
        screen.notify("A recorded run has nothing to be compared with.", timeout=3)
        return
    if not main.settings.sampling.greedy:
        screen.notify("A comparison with the oracle is greedy: use --temperature 0.", timeout=4)
        return
    running = main.worker.running
    held = main.state is State.PAUSED
    main.worker.pause()
    beside = there = _comparison(main)
    if beside is None or _shared(beside) != _shared(main):
        if there is not None:
            there.stop()
        lanes = lane_settings(main.settings)
        beside = CompareControl(main, source, lanes, paused=held)
        beside.playhead = Playhead(speed=main.speed, animate=screen.playhead.animate)
        beside.start()
    elif running:
        beside.worker.run()
    main.look_at(beside, instead=there)
    screen.app.push_screen(CompareScreen(beside, beside.playhead, running))


def _comparison(main: Control) -> CompareControl | None:
    """The one there is; a fork is kept apart."""
    found = (one for one in main.besides if type(one) is CompareControl)
    return next(found, None)


def _shared(control: Control) -> Settings:
    """What the lanes have of the single run: all but its method."""
    return replace(control.settings, method="eqspec")
