"""From the single run to the comparison, which stays as it was left until it no longer fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.config.settings import Settings
from engine.runs.worker import State
from tui.screens.compare import CompareScreen
from tui.session.compare import CompareControl, ComparingSource, lane_settings
from tui.session.control import Control
from tui.session.playhead import Playhead

if TYPE_CHECKING:
    from tui.screens.actions import RunScreen


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
