"""A fork: the run as it went on, and beside it the lane that left it."""

from __future__ import annotations

from typing import Any

from textual import events

from tui.screens.compare import CompareScreen
from tui.session.fork import ForkControl
from tui.session.playhead import Playhead

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
