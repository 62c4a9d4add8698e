"""From the run to the fault lab and back, with the fault that was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config.faults import FAULTS
from tui.screens.faults import FaultScreen
from tui.session.fault_lab import METHOD, FaultLab, RestartingSource

if TYPE_CHECKING:
    from tui.screens.actions import RunScreen


def _read_only(screen: RunScreen) -> None:
    """The known mistakes over a recorded run, to be read; the one that was recorded is marked."""
    record = screen.frame_now().record
    current = record.fault if record is not None else ""

    def chosen(name: str | None) -> None:
        if name is not None:
            screen.notify("A recorded run cannot be given a fault.", timeout=3)

    screen.app.push_screen(FaultScreen(current, False, read_only=True), chosen)


def open_fault_lab(screen: RunScreen) -> None:
    """Show the lab over a screen, and switch what is chosen there."""
    control = screen.control
    source = control.source
    if not isinstance(source, RestartingSource):
        _read_only(screen)
        return
    if control.settings.strict:
        screen.notify("The fault lab needs a rectangle that moves: run without --strict.")
        return
    lab = screen.lab = screen.lab or FaultLab(control, source)

    def chosen(name: str | None) -> None:
        if name is None:
            return
        fault = FAULTS[name]
        if lab.can_switch():
            off = lab.fault == name
            lab.switch(name)
            words = "is off: back to before it went on" if off else "is on from the next round"
            screen.playhead.follow(screen.last)
        else:
            screen.begin_again(method=METHOD, fault=name)
            words = f"is on; {METHOD} begins again"
        screen.notify(f"{fault.title} {words}", title="fault lab", timeout=4, markup=False)
        screen.show_frame()

    screen.app.push_screen(FaultScreen(lab.fault, lab.can_switch()), chosen)
