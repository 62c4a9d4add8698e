"""What the keys of a screen over one run do, apart from how it lays out its panes."""

from __future__ import annotations

import time
from typing import Any

from textual import events, on
from textual.message import Message
from textual.screen import Screen

from engine.config.errors import UserError
from engine.config.settings import LIMITS
from engine.records.schema import ChangeRecord, Failure
from tui.screens.error import ErrorScreen
from tui.screens.methods import MethodScreen
from tui.session.changes import Changes, replaced
from tui.session.control import Control
from tui.session.fault_lab import FaultLab
from tui.session.playhead import Playhead
from tui.view.panes.texts import visible_rows
from tui.view.sentences import change_words
from tui.view.state.cursor import Cursor
from tui.view.state.frame import CellMode, Frame
from tui.view.state.search import Hits
from tui.widgets.tensor import TensorSection, TokenPicked


class Open(Message):
    """A screen is wanted over a run's screen.

    Args:
        what: its name in `tui.app.openers`.
        argument: which token to inspect, or how many hits to go on.
    """

    def __init__(self, screen: RunScreen, what: str, argument: int | None) -> None:
        super().__init__()
        self.screen = screen
        self.what = what
        self.argument = argument


class RunScreen(Screen[None]):
    """The viewer's choices, and the actions that the keys stand for."""

    def __init__(self, control: Control, playhead: Playhead) -> None:
        super().__init__()
        self.control = control
        self.playhead = playhead
        self.mode = CellMode.TOKEN
        self.selected: int | None = None
        self.count = ""
        """Digits typed before a key."""
        self.pane = 0
        self._held: ChangeRecord | None = None
        """Why the run holds by itself, once it is known."""
        self.lab: FaultLab | None = None
        self.changes = Changes(control)
        self.hits: Hits | None = None
        """What was searched for, and found."""
        self.file_to_check = ""
        """The one that was named last."""

    def show_frame(self) -> None:
        """Show what is now to be shown."""
        raise NotImplementedError

    def frame_now(self) -> Frame:
        """What the panes show."""
        raise NotImplementedError

    def choose_pane(self, index: int) -> None:
        """Which of the lower panes a small screen shows."""
        raise NotImplementedError

    def on_key(self, event: events.Key) -> None:
        """Digits wait for the key that they count."""
        character = event.character or ""
        if character.isdigit() and character.isascii() and (character != "0" or self.count):
            self.count = (self.count + character)[-6:]
            event.stop()
            self.show_frame()
        elif event.key == "escape" and self.count:
            self.count = ""
            self.show_frame()

    def take_count(self, default: int = 1) -> int:
        """The number typed before this key."""
        count = int(self.count) if self.count else default
        self.count = ""
        return count

    @property
    def cursor(self) -> Cursor:
        return self.playhead.cursor

    @property
    def last(self) -> int:
        return self.control.timeline.last

    def action_toggle_run(self) -> None:
        self.take_count()
        worker, playhead = self.control.worker, self.playhead
        if playhead.playing:
            playhead.playing = False
            worker.pause()
        elif worker.running:
            worker.pause()
        elif not self.control.state.ended:
            worker.run()
            playhead.play(self.last)
        elif playhead.cursor.round < self.last:
            playhead.play(self.last)
        else:
            self.notify("The run is over. r starts again, p looks back.", timeout=3)
        self.show_frame()

    def action_next_round(self) -> None:
        missing = self.playhead.next_round(time.monotonic(), self.last, self.take_count())
        if missing:
            self._make(missing)
        self.show_frame()

    def action_next_phase(self) -> None:
        for _ in range(self.take_count()):
            if self.playhead.next_phase(self.last):
                self._make(1)
                break
        self.show_frame()

    def _make(self, rounds: int) -> None:
        """Have the engine make more rounds, then hold."""
        if self.control.state.ended:
            self.notify("The run is over. r starts again.", timeout=3)
        elif self.control.worker.running:
            self.control.worker.pause()
        else:
            self.control.worker.step(rounds)

    def action_previous_round(self) -> None:
        self.playhead.previous_round(self.last, self.take_count())
        self.show_frame()

    def action_previous_phase(self) -> None:
        for _ in range(self.take_count()):
            self.playhead.previous_phase(self.last)
        self.show_frame()

    def action_first(self) -> None:
        self.take_count()
        self.playhead.jump(min(1, self.last), self.last)
        self.show_frame()

    def action_last(self) -> None:
        self.take_count()
        self.playhead.follow(self.last)
        self.show_frame()

    def action_jump(self) -> None:
        if not self.count:
            self.notify("Type a round's number before g, as in 42g.", timeout=3)
            return
        self.playhead.jump(self.take_count(), self.last)
        self.show_frame()

    def breaks(self) -> list[tuple[int, int | None]]:
        """Where an invariant breaks for the first time in a row: place in time, and row."""
        return [(number, broken.row) for number, broken in self.control.timeline.breaks]

    def action_next_break(self, step: int) -> None:
        """To where an invariant breaks next, or broke before; from the live end, the first one."""
        places = sorted({number for number, _ in self.breaks()})
        here = 0 if step > 0 and self.playhead.following else self.cursor.round
        count = self.take_count()
        later = [place for place in places if place > here]
        earlier = [place for place in places if place < here]
        wanted = later[:count][-1:] if step > 0 else earlier[-count:][:1]
        if not wanted:
            self.notify("No other invariant breaks." if places else "No invariant breaks here.")
            return
        rows = [row for number, row in self.breaks() if number == wanted[0]]
        if rows[0] is not None:
            self.selected = rows[0]
        self.playhead.jump(wanted[0], self.last)
        self.show_frame()

    def action_slower(self) -> None:
        self.control.speed = self.playhead.slower()
        self.show_frame()

    def action_faster(self) -> None:
        self.control.speed = self.playhead.faster()
        self.show_frame()

    def action_cell_mode(self) -> None:
        self.mode = self.mode.next()
        self.show_frame()

    def action_zoom(self, step: int) -> None:
        section = self.query_one(TensorSection)
        section.tensor.change_zoom(step)
        section.repaint()

    def action_pan(self, step: int) -> None:
        section = self.query_one(TensorSection)
        section.tensor.pan(step * self.take_count())
        section.repaint()

    def action_select(self, step: int) -> None:
        frame = self.frame_now()
        rows = visible_rows(frame)
        if not rows:
            return
        step *= self.take_count()
        place = rows.index(frame.selected) if frame.selected in rows else 0
        self.selected = rows[max(0, min(len(rows) - 1, place + step))]
        self.show_frame()
        self.query_one(TensorSection).tensor.reveal(self.selected)

    def open(self, what: str, argument: int | None = None) -> None:
        """Ask the app for another screen over this one (`tui.app.openers`)."""
        self.take_count()
        self.post_message(Open(self, what, argument))

    def action_inspect(self) -> None:
        """The selected row's round in full."""
        self.open("inspect")

    def action_search(self) -> None:
        self.open("search")

    def action_next_hit(self, step: int) -> None:
        self.open("hit", step * self.take_count())

    def action_copy(self) -> None:
        self.open("copy")

    def action_intervene(self) -> None:
        self.open("intervene")

    @on(TokenPicked)
    def _token_picked(self, event: TokenPicked) -> None:
        self.selected = event.row
        self.open("inspect", event.place)

    def action_cycle_pane(self, step: int) -> None:
        self.choose_pane(self.pane + step)

    def action_restart(self) -> None:
        self.begin_again()

    def action_draft_tokens(self, step: int) -> None:
        settings = self.control.settings
        low, high = LIMITS["draft_tokens"]
        if settings.draft_tokens == "auto":
            self.notify("K is chosen by itself (--draft-tokens auto).", timeout=3)
            return
        wanted = max(low, min(high, settings.draft_tokens + step * self.take_count()))
        if wanted != settings.draft_tokens:
            self.change(draft_tokens=wanted)

    def action_choose_method(self) -> None:
        def chosen(method: str | None) -> None:
            if method is not None:
                self.change(method=method)

        if not self.control.source.live:
            self.take_count()
            self.notify("A recorded run stays with its method.", timeout=3)
            return
        settings = self.control.settings
        self.app.push_screen(MethodScreen(settings.method, self.changes.can_change), chosen)

    def action_compare(self) -> None:
        """The run holds, and the methods go on side by side."""
        self.open("compare")

    def action_fork(self) -> None:
        """A second lane from the cursor's round on, beside the run."""
        self.open("fork")

    def action_check(self) -> None:
        """Another engine's tokens against this target."""
        self.open("check")

    def action_faults(self) -> None:
        """The fault lab."""
        self.open("faults")

    def change(self, **changes: Any) -> None:
        """Other settings from the next round on; a run that is over begins again."""
        self.take_count()
        if not self.changes.can_change:
            self.begin_again(**changes)
            return
        try:
            self.changes.settings(**changes)
        except UserError as error:
            self.notify(str(error), severity="warning", markup=False)
        self.show_frame()

    def show_messages(self) -> None:
        """Say what has come of changes to the run."""
        for message in self.changes.messages():
            if message.failed:
                self.notify(message.words, severity="warning", markup=False)
            else:
                self.notify(f"{message.words}, from the next round on", timeout=3, markup=False)

    def tell_hold(self) -> None:
        """Say why the run holds by itself, and what can be done."""
        held = self.control.timeline.held
        if held is not None and self._held is None:
            words = f"{change_words(held)} with e, then go on with space"
            self.notify(words, title="the run holds", severity="error", timeout=20, markup=False)
        self._held = held

    def begin_again(self, **changes: Any) -> None:
        """Start the run again, under other settings if given."""
        self.take_count()
        if not self.control.source.live:
            self.notify("A recorded run cannot be started again.", timeout=3)
            return
        settings = replaced(self.control.settings, **changes)
        try:
            settings.check()
        except UserError as error:
            self.notify(str(error), severity="warning", markup=False)
            return
        self.control.failed = False
        self.control.restart(settings)
        self.playhead.follow(0)
        self.selected = None
        self.query_one(TensorSection).tensor.hidden = 0
        self.show_frame()

    def report_failure(self, failure: Failure) -> None:
        """Say what broke; what was generated stays on the screen."""

        def chosen(choice: str | None) -> None:
            if choice == "restart":
                self.begin_again()
            elif choice == "quit":
                self.app.exit(self.control.worker.exit_code)

        timeline = self.control.timeline
        screen = ErrorScreen(failure, timeline.last, timeline.tokens_at(timeline.last))
        self.app.push_screen(screen, chosen)
