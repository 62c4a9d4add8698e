"""The app on recorded runs: one trace with every pane, or two side by side. No torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.config.settings import Settings
from engine.evaluation.trace_compare import names_of, shared_prompts, side_by_side
from engine.microscope.breakpoints import Breakpoint
from engine.records.schema import Record, RoundRecord, RunHeader
from engine.records.trace import trace_header
from engine.runs.worker import Progress
from tui.app.app import BatchspecApp
from tui.app.log import log_file
from tui.app.preferences import Preferences, load_preferences, save_preferences
from tui.app.terminal import quiet_terminal
from tui.screens.main import MainScreen
from tui.screens.recorded import RecordedControl, RecordedScreen
from tui.screens.run import RunScreen
from tui.session.control import Control
from tui.session.recorded_breakpoints import Findings, RecordedPlayhead, hit_lines
from tui.view.sentences import unlike_words

SPEED = 5.0
"""Rounds a second at which `space` plays, until it is changed."""

READING = 0.02
"""Seconds of a slice of reading, and between two of them."""


class RecordedSource:
    """Traces, read in the engine's thread.

    Raises:
        UserError: a file is no trace, or one of a newer format.
    """

    live = False

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self.name = " | ".join(path.name for path in self.paths)
        self.headers = [trace_header(path) for path in self.paths]
        self.notices: list[str] = []
        """What could not be read; complete when the worker has ended."""
        self._stream = side_by_side(self.paths, self.notices)

    @property
    def lanes(self) -> int:
        """Runs side by side."""
        return sum(header.lanes for header in self.headers)

    @property
    def lane_names(self) -> tuple[str, ...]:
        """The file of each lane, where there are several."""
        if len(self.paths) == 1:
            return ()
        named = zip(names_of(self.paths), self.headers, strict=True)
        return tuple(name for name, header in named for _ in range(header.lanes))

    @property
    def compared(self) -> int | None:
        """How many rows have the same prompt in all files; None: all of them."""
        headers = self.headers
        count = len(shared_prompts(headers))
        return count if count < max(len(header.prompts) for header in headers) else None

    def first_round(self) -> list[Record]:
        """The records up to the first round: enough for a first frame. `open` gives the rest."""
        first: list[Record] = []
        for record in self._stream:
            first.append(record)
            if isinstance(record, RoundRecord):
                break
        return first

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        yield from self._stream


class ReplayApp(BatchspecApp):
    """Opens where the recording begins; `space` plays it, `end` goes to its end."""

    def __init__(
        self, control: Control, source: RecordedSource, *, theme: str | None = None
    ) -> None:
        super().__init__(control, theme=theme)
        self.source = source
        self.playhead = self.recorded = RecordedPlayhead(
            speed=control.speed, animate=self.playhead.animate
        )
        self.findings = Findings(lambda: side_by_side(source.paths, []))
        self._notices_shown = 0
        self._held_at = 0

    def open_first(self) -> None:
        """One run is shown at once, at its first round; the rest is read behind it."""
        if isinstance(self.control, RecordedControl):
            super().open_first()
            return
        for record in self.source.first_round():
            self.control.worker.history.append(record)
        self.control.take()
        self._main = MainScreen(self.control, self.playhead)
        self.push_screen(self._main)

    def _start(self) -> None:
        super()._start()
        self.set_interval(0.2, self._tell_notices)
        self._reading = self.set_interval(READING, self._read_on)

    def _read_on(self) -> None:
        """Take in what has been read, in slices between which keys are heard."""
        fresh = self.control.take(READING)
        if fresh and isinstance(self.screen, RunScreen) and self.screen.is_mounted:
            self.screen.show_frame()
        elif self.control.state.ended:
            self._reading.stop()
            self._watch_breakpoints()

    def _tell_notices(self) -> None:
        compared = self.source.compared
        unlike = [] if compared is None else [unlike_words(compared)]
        for notice in [*unlike, *self.source.notices][self._notices_shown :]:
            self._notices_shown += 1
            self.notify(notice, severity="warning", timeout=10, markup=False)

    def default_note(self) -> str:
        """That the recording is not whole stays in the status line, after the notice has gone."""
        if self.source.notices:
            return "cut short"
        return "other prompts" if self.source.compared is not None else ""

    def _watch_breakpoints(self) -> None:
        """Playing stops where a breakpoint applies; stepping there tells of it too."""
        if not self.control.state.ended:
            return
        self.findings.update(self.breaking.points)
        self.recorded.stops = self.findings.rounds
        number = self.playhead.cursor.round
        hits = self.findings.at(number)
        self.breaking.held_by = hits[-1] if hits and not self.playhead.playing else None
        self.show_held()
        if self.breaking.held_by is None:
            self._held_at = 0
        elif number != self._held_at:
            self._held_at = number
            for line in hit_lines(hits):
                self.notify(line, title="breakpoint", timeout=6, markup=False)

    def _watch_loading(self) -> None:
        if not isinstance(self.control, RecordedControl):
            self._timer.stop()
            return
        self.control.take()
        comparison = self.control.comparison
        if self.screen is not self._loading:
            return
        if comparison.complete or comparison.failure is not None:
            self._timer.stop()
            self.switch_screen(RecordedScreen(self.control, self.playhead))


def show(
    source: RecordedSource, *, theme: str | None = None, breaks: Sequence[Breakpoint] = ()
) -> int:
    """Show the traces until the user leaves. Returns the exit status."""
    control = recorded_control(source)
    with quiet_terminal(log_file()):
        app = ReplayApp(control, source, theme=theme or load_preferences().theme or None)
        app.breaking.give(breaks)
        began_with = app.theme
        status = app.run()
        if app.theme != began_with:
            save_preferences(Preferences(theme=app.theme))
        ended = control.stop(timeout=0.2)
    code = status if status is not None else app.return_code or 0
    if not ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def recorded_control(source: RecordedSource) -> Control:
    """The hold on the recording: of one run, or of several."""
    settings = [recorded_settings(header) for header in source.headers]
    if source.lanes == 1:
        return Control(source, settings[0], speed=SPEED, log=log_file())
    lanes = [
        one
        for one, header in zip(settings, source.headers, strict=True)
        for _ in range(header.lanes)
    ]
    return RecordedControl(source, lanes, source.lane_names, speed=SPEED, log=log_file())


def recorded_settings(header: RunHeader) -> Settings:
    """What the run was recorded with, as far as it says so in a way that is known here."""
    known = {}
    for name in ("batch_size", "draft_tokens", "window", "max_new_tokens"):
        value = header.settings.get(name)
        if isinstance(value, int) or (name == "draft_tokens" and value == "auto"):
            known[name] = value
    fault = header.settings.get("fault")
    return Settings(
        method=header.method,
        fault=fault if isinstance(fault, str) else "",
        **known,  # type: ignore[arg-type]
    )
