"""`c`: from the run to a check of another engine's tokens, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.evaluation.check.outputs import Foreign
from engine.runs.worker import Progress
from tui.screens.ask import AskScreen
from tui.screens.check import CheckScreen
from tui.session.check import Checked, CheckingSource, CheckSource
from tui.session.control import Control

if TYPE_CHECKING:
    from tui.screens.actions import RunScreen

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

        def closed(told: str | None) -> None:
            if told is not None:
                screen.notify(told, title="check", severity="warning", timeout=8, markup=False)
            if running:
                main.worker.run()

        screen.app.push_screen(CheckScreen(control), closed)

    screen.app.push_screen(
        AskScreen("check another engine's tokens: which file", NOTE, screen.file_to_check), named
    )
