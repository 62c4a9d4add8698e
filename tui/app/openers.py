"""Which function opens which screen over the screen of a run."""

from __future__ import annotations

from collections.abc import Callable

from tui.screens.check import open_check
from tui.screens.compare import open_comparison
from tui.screens.copy import open_copy
from tui.screens.faults import open_fault_lab
from tui.screens.fork import open_fork
from tui.screens.inspect import open_inspector
from tui.screens.intervene import open_interventions
from tui.screens.run import Open, RunScreen
from tui.screens.search import open_search, walk_hits

OPENERS: dict[str, Callable[[RunScreen], None]] = {
    "check": open_check,
    "compare": open_comparison,
    "copy": open_copy,
    "faults": open_fault_lab,
    "fork": open_fork,
    "intervene": open_interventions,
    "search": open_search,
}


def open_screen(wanted: Open) -> None:
    """Open what a screen asked for."""
    if wanted.what == "inspect":
        open_inspector(wanted.screen, wanted.argument)
    elif wanted.what == "hit":
        walk_hits(wanted.screen, wanted.argument or 1)
    else:
        OPENERS[wanted.what](wanted.screen)
