"""A fork: the run as it went on, and beside it a lane that left it, under settings asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from textual import events

from engine.config.errors import UserError
from engine.config.faults import FAULTS
from engine.config.settings import Settings
from tui.screens.ask import AskScreen, Choice, ChooseScreen
from tui.screens.compare import CompareScreen
from tui.screens.intervene import SETTINGS, Setting, typed
from tui.screens.methods import MethodScreen
from tui.screens.run import RunScreen
from tui.session.changes import replaced
from tui.session.fault_lab import METHOD
from tui.session.fork import ForkControl, ForkingSource, settings_at
from tui.session.playhead import Playhead

if TYPE_CHECKING:
    from tui.session.control import Control


STAYS = "What a lane of a fork runs is settled: F in the single run forks anew."


class ForkScreen(CompareScreen):
    """A comparison of two lanes with one past. `F`, `b` and escape lead back to the run."""

    keys_of = "fork"

    def __init__(self, control: ForkControl, playhead: Playhead, resume: bool) -> None:
        super().__init__(control, playhead, resume)
        self.forked = control
        self.focus_lane = 1

    def on_mount(self) -> None:
        super().on_mount()
        if not self.forked.comparison.last:
            self.notify(
                "space lets both lanes go on, n a round; d goes to the first difference",
                title=f"fork after round {self.forked.number}",
                timeout=5,
            )

    def tick(self) -> None:
        """Stand at the end of the past while that is taken in; then as in any comparison."""
        if self.forked.reading:
            self.forked.take()
            self.playhead.follow(self.last)
            self.show_frame()
        super().tick()

    def on_key(self, event: events.Key) -> None:
        """Escape leads back, unless there is a number to be taken back (`RunScreen.on_key`)."""
        if event.key == "escape" and not self.count:
            event.stop()
            self.action_compare()

    def action_fork(self) -> None:
        self.action_compare()

    def _stays(self) -> None:
        self.take_count()
        self.notify(STAYS, timeout=3)

    def action_restart(self) -> None:
        self._stays()

    def begin_again(self, **changes: Any) -> None:
        self._stays()

    def action_choose_method(self) -> None:
        self._stays()

    def action_next_pace(self) -> None:
        self.take_count()
        self.notify("The lanes of a fork go a round each in turn.", timeout=3)


NO_FAULT = "none"


def open_fork(screen: RunScreen) -> None:
    """Ask how the second lane goes on from the cursor's round, and show both."""
    control = screen.control
    source = control.source
    if not isinstance(source, ForkingSource):
        screen.notify("A recorded run cannot be forked: there is no model to go on with.")
        return
    running = control.worker.running
    control.worker.pause()
    number = screen.frame_now().committed_round
    if control.timeline.header is None:
        return
    Asking(screen, source, number, running).ask()


class Asking:
    """The settings of the second lane, asked for until it is to begin."""

    def __init__(
        self, screen: RunScreen, source: ForkingSource, number: int, running: bool
    ) -> None:
        self.screen = screen
        self.source = source
        self.number = number
        self.running = running
        """Whether the run goes on when it is come back to."""
        self.was = self.now = settings_at(screen.control, number)

    def ask(self) -> None:
        """The list, again after each setting."""
        now = self.now
        choices = [Choice("go", "fork", self._words())]
        there = _fork(self.screen.control)
        if there is not None and there.base is self.screen.control.worker:
            choices.append(Choice("back", "the fork there is", f"from round {there.number} on"))
        choices.append(Choice("method", "method", _change(self.was.method, now.method)))
        fault = now.fault or NO_FAULT
        choices.append(Choice("fault", "fault", _change(self.was.fault or NO_FAULT, fault)))
        for setting in SETTINGS:
            words = _change(value_of(self.was, setting), value_of(now, setting))
            choices.append(Choice(setting.name, setting.label, words))
        title = f"fork after round {self.number}: the second lane's settings"
        self.screen.app.push_screen(ChooseScreen(title, choices), self._chosen)

    def _words(self) -> str:
        when = f"after round {self.number}" if self.number else "from the prompts on"
        same = self.now == self.was
        return f"{when}, under the same settings" if same else f"{when}, under these settings"

    def _chosen(self, choice: str | None) -> None:
        push = self.screen.app.push_screen
        if choice is None:
            if self.running:
                self.screen.control.worker.run()
        elif choice == "go":
            self._begin()
        elif choice == "back":
            self._show()
        elif choice == "method":
            push(MethodScreen(self.now.method, goes_on=True), self._method)
        elif choice == "fault":
            push(ChooseScreen(f"fault, {METHOD} with one thing done wrong", _faults()), self._fault)
        else:
            setting = next(setting for setting in SETTINGS if setting.name == choice)
            value = str(value_of(self.now, setting))
            push(
                AskScreen(setting.label, setting.note, value),
                lambda text: self._typed(setting, text),
            )

    def _method(self, method: str | None) -> None:
        if method is not None:
            self._try(replaced(self.now, method=method))
        self.ask()

    def _fault(self, name: str | None) -> None:
        if name == NO_FAULT:
            self._try(replace(self.now, fault=""))
        elif name is not None:
            self._try(replace(self.now, fault=name, method=METHOD))
        self.ask()

    def _typed(self, setting: Setting, text: str | None) -> None:
        if text:
            try:
                self._try(replaced(self.now, **{setting.name: typed(setting, text)}))
            except UserError as error:
                self._complain(error)
        self.ask()

    def _try(self, settings: Settings) -> None:
        try:
            self.now = settings.check()
        except UserError as error:
            self._complain(error)

    def _complain(self, error: UserError) -> None:
        self.screen.notify(str(error), severity="warning", markup=False)

    def _begin(self) -> None:
        control, playhead = self.screen.control, self.screen.playhead
        there = _fork(control)
        if there is not None:
            there.stop()
        fork = ForkControl(
            control,
            self.source,
            self.number,
            self.was,
            self.now,
            None if there is None else there.worker,
        )
        fork.playhead = Playhead(speed=control.speed, animate=playhead.animate)
        control.look_at(fork, instead=there)
        fork.start()
        self._show()

    def _show(self) -> None:
        fork = _fork(self.screen.control)
        assert fork is not None, "it has been begun"
        self.screen.control.look_at(fork)
        self.screen.app.push_screen(ForkScreen(fork, fork.playhead, self.running))


def _fork(control: Control) -> ForkControl | None:
    """The one there is; a comparison is kept apart."""
    return next((one for one in control.besides if isinstance(one, ForkControl)), None)


def value_of(settings: Settings, setting: Setting) -> object:
    """What a setting is."""
    place = settings if hasattr(settings, setting.name) else settings.sampling
    return getattr(place, setting.name)


def _change(was: object, now: object) -> str:
    return f"{now}" if was == now else f"{was} → {now}"


def _faults() -> list[Choice]:
    none = Choice(NO_FAULT, NO_FAULT, "as it should be")
    return [
        none,
        *(Choice(name, fault.title, " ".join(fault.breaks)) for name, fault in FAULTS.items()),
    ]
