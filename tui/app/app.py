"""The terminal app: themes, screens, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from engine.config.errors import BatchspecError
from engine.config.settings import Settings
from tui.app.log import log_file
from tui.app.openers import open_screen
from tui.app.preferences import Preferences, load_preferences, save_preferences
from tui.app.terminal import on_terminate, quiet_terminal
from tui.app.themes import DEFAULT, fallback_variables, load_themes, themes_stamp
from tui.screens.breakpoints import BreakpointsScreen
from tui.screens.help import HelpScreen
from tui.screens.loading import LoadingScreen
from tui.screens.main import MainScreen
from tui.screens.run import Open
from tui.session.breakpoints import Breaking, held_words
from tui.session.control import Control
from tui.session.live import LiveSource
from tui.session.playhead import Playhead
from tui.session.request import AppRequest
from tui.view.sentences import hit_words
from tui.view.showable import showable
from tui.widgets.compare import CompareBar
from tui.widgets.keys import bindings
from tui.widgets.status import StatusBar

if TYPE_CHECKING:
    from tui.tour.source import RecordedTour

TERMINATED = 143
"""Exit status after SIGTERM."""


class BatchspecApp(App[int]):
    """Shows one source of records."""

    TITLE = "batchspec-tui"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("app")]
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"

    def __init__(self, control: Control, *, theme: str | None = None, tour: bool = False) -> None:
        super().__init__()
        self.control = control
        self.tour = tour
        self.our_themes: list[str] = []
        self.theme_problems: list[str] = []
        self._themes_stamp = themes_stamp()
        self._load_themes()
        wanted = theme or DEFAULT
        if wanted not in self.available_themes:
            self.theme_problems.append(f"no theme is called '{wanted}'")
            wanted = DEFAULT
        self.theme = wanted
        self.playhead = Playhead(speed=control.speed, animate=self.animation_level != "none")
        self.breaking = Breaking()
        self._main: MainScreen | None = None

    def _load_themes(self) -> None:
        themes, self.theme_problems = load_themes()
        for entry in themes:
            self.register_theme(entry)
        self.our_themes = [entry.name for entry in themes]

    def _reload_themes(self) -> None:
        """Show the user's own themes as they are edited."""
        stamp = themes_stamp()
        if stamp == self._themes_stamp:
            return
        self._themes_stamp = stamp
        current = self.theme
        self._load_themes()
        self._tell_problems()
        self.theme = next(name for name in self.available_themes if name != current)
        self.theme = current if current in self.available_themes else DEFAULT

    def _tell_problems(self) -> None:
        for problem in self.theme_problems:
            self.notify(problem, severity="warning", markup=False)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours of the meanings where a theme has none of its own."""
        return fallback_variables(self.current_theme)

    def on_mount(self) -> None:
        if not self.is_headless:
            on_terminate(self._terminated)
        self.open_first()
        self.call_after_refresh(self._start)

    def open_first(self) -> None:
        """Push the first screen: there is nothing to show yet but what is being loaded."""
        self._loading = LoadingScreen(self.control.source.name, self.control.settings.method)
        self.push_screen(self._loading)

    def _start(self) -> None:
        """After the first frame: the engine may now take the machine."""
        self.breaking.apply(self.control)
        self.set_interval(0.1, self._watch_breakpoints)
        self.control.start()
        self._timer = self.set_interval(1 / 15, self._watch_loading)
        self._tell_problems()
        self.set_interval(2.0, self._reload_themes)

    def _watch_loading(self) -> None:
        self.control.take()
        if self.screen is not self._loading:
            return  # the help or the palette is open: it is not to be replaced
        timeline = self.control.timeline
        if timeline.header is not None or timeline.failure is not None:
            self._timer.stop()
            self._main = self._main_screen()
            self.switch_screen(self._main)
            return
        self._loading.pane.report(*self.control.worker.stage)

    def _main_screen(self) -> MainScreen:
        if not self.tour:
            return MainScreen(self.control, self.playhead)
        from tui.tour.screen import TourScreen

        return TourScreen(self.control, self.playhead)

    def action_next_theme(self) -> None:
        """The next of the themes from files."""
        names = self.our_themes
        place = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(place + 1) % len(names)]
        self.notify(self.theme, title="theme", timeout=2, markup=False)

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def _watch_breakpoints(self) -> None:
        """Tell where a breakpoint holds the run, in a word that stays and one that goes."""
        self.breaking.apply(self.control)
        for hit in self.breaking.new_hits(self.control)[:3]:
            self.notify(hit_words(hit), title="breakpoint", timeout=8, markup=False)
        self.show_held()

    def show_held(self) -> None:
        """In the status line: the breakpoint that holds the run, or that memory ran out."""
        if not self.screen_stack:
            return  # the app is closing
        held = self.breaking.held_by
        note = "" if held is None else showable(held_words(held))
        note = note or self.default_note()
        for bar in self.screen.query("StatusBar, CompareBar"):
            if isinstance(bar, StatusBar | CompareBar) and bar.note != note:
                bar.note = note
                bar.repaint()

    def default_note(self) -> str:
        """What the status line says where no breakpoint holds the run."""
        held = self.control.timeline.held
        return "out of memory" if held and not self.control.worker.running else ""

    @on(Open)
    def _open(self, event: Open) -> None:
        open_screen(event)

    def action_breakpoints(self) -> None:
        if not isinstance(self.screen, BreakpointsScreen):
            self.push_screen(BreakpointsScreen(self.breaking))

    def action_help_quit(self) -> None:
        """ctrl+c copies what is selected; whoever wants to leave with it reads how."""
        self.notify("Press q.", title="Do you want to quit?", timeout=4, markup=False)

    async def action_quit(self) -> None:
        """Leave at once; the engine's thread is not waited for here."""
        self.control.stop()
        self.exit(self.control.worker.exit_code)

    def _terminated(self) -> None:
        self.control.stop()
        self.exit(TERMINATED)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        for command in super().get_system_commands(screen):
            if command.title not in ("Keys", "Maximize", "Minimize"):
                yield command
        yield SystemCommand("Help", "Every key, and what the signs mean", self.action_help)
        main = self._main
        if main is None:
            return
        yield SystemCommand("Run or pause", "Hold, or go on", main.action_toggle_run)
        yield SystemCommand("Restart", "Start again from the prompts", main.action_restart)
        yield SystemCommand("Method", "Choose another method", main.action_choose_method)
        yield SystemCommand("Fork", "A second lane from this round on", main.action_fork)
        yield SystemCommand("Check", "Another engine's tokens, row by row", main.action_check)
        yield SystemCommand("Cells", "What the cells show", main.action_cell_mode)
        if self.tour:
            action = partial(main.run_action, "stops")
            yield SystemCommand("Stops", "Another stop of the tour", action)


def _source(request: AppRequest) -> tuple[LiveSource | RecordedTour, Settings]:
    """The run that is asked for, or the first one of the tour."""
    if not request.tour:
        return LiveSource(request), request.settings
    from tui.tour.source import tour_source
    from tui.tour.stops import STOPS

    return tour_source(request), STOPS[0].settings(request.settings)


def run_app(request: AppRequest) -> int:
    """Run the app until the user leaves it. Returns the exit status."""
    source, settings = _source(request)
    log = log_file()
    control = Control(source, settings, paused=request.paused or request.tour, log=log)
    with quiet_terminal(log):
        app = BatchspecApp(
            control, theme=request.theme or load_preferences().theme or None, tour=request.tour
        )
        app.breaking.give(request.breaks)
        began_with = app.theme
        status = app.run()
        if app.theme != began_with:
            save_preferences(Preferences(theme=app.theme))
        # A result that is to be written is worth a moment; nothing else is.
        ended = control.stop(timeout=2.0 if request.json or request.trace else 0.2)
    if isinstance(source, LiveSource) and len(source.recording.written) > 1:
        names = ", ".join(str(path) for path in source.recording.written)
        print(f"batchspec-tui: recorded in {names}", file=sys.stderr)
    failure = control.timeline.failure
    if failure is not None:
        hint = f"; the traceback is in {failure.log}" if failure.log else ""
        print(f"batchspec-tui: {failure.message}{hint}", file=sys.stderr)
    code = status if status is not None else app.return_code or 0
    result = source.result()
    if request.json is not None and result is not None:
        from tui.session.results import write_run

        try:
            write_run(request.json, *result)
        except BatchspecError as error:
            print(f"batchspec-tui: {error}", file=sys.stderr)
            code = error.exit_code
    if not ended:
        # A round is still being computed. Native threads must not meet a dying interpreter.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
