"""`check FILE --tui`: the app with nothing but a check in it."""

from __future__ import annotations

import os
import sys

from engine.config.settings import Settings
from tui.app.app import BatchspecApp
from tui.app.log import log_file
from tui.app.preferences import load_preferences
from tui.app.terminal import quiet_terminal
from tui.screens.check import CheckScreen
from tui.session.check import CheckSource
from tui.session.control import Control


class CheckApp(BatchspecApp):
    """One screen; when it is closed, the app is left."""

    def __init__(self, control: Control, *, theme: str | None = None) -> None:
        super().__init__(control, theme=theme)
        self.message = ""
        """Why there is nothing to show."""

    def open_first(self) -> None:
        self.push_screen(CheckScreen(self.control), self._left)

    def _start(self) -> None:
        self.control.start()
        self._tell_problems()
        self.set_interval(2.0, self._reload_themes)

    def _left(self, message: str | None) -> None:
        self.message = message or ""
        self.exit(self.control.worker.exit_code)


def show(source: CheckSource, settings: Settings, *, theme: str | None = None) -> int:
    """Check, and show it until the user leaves. Returns the exit status."""
    log = log_file()
    control = Control(source, settings, log=log)
    with quiet_terminal(log):
        app = CheckApp(control, theme=theme or load_preferences().theme or None)
        status = app.run()
        ended = control.stop(timeout=0.2)
    if app.message:
        print(f"batchspec-tui: {app.message}", file=sys.stderr)
    code = status if status is not None else app.return_code or 0
    if not ended:
        # The target is still being asked. Native threads must not meet a dying interpreter.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
