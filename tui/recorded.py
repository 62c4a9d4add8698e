"""Breakpoints over a recording: where they apply is known at once, and playing stops there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from engine.breakpoints import Breakpoint, Hit
from engine.history import History
from engine.watch import Watch
from tui.playhead import Playhead
from tui.view.cursor import LAST, Cursor


class RecordedPlayhead(Playhead):
    """A playhead that holds at some rounds when it plays."""

    def __init__(self, *, speed: float | None = None, animate: bool = True) -> None:
        super().__init__(speed=speed, animate=animate)
        self.stops: list[int] = []
        self.following = False
        self.cursor = Cursor(1)

    def tick(self, now: float, last: int, running: bool) -> bool:
        before, playing = self.cursor.round, self.playing
        changed = super().tick(now, last, running)
        if playing:
            self._hold_between(before, last)
        return changed

    def _hold_between(self, before: int, last: int) -> None:
        place = bisect_right(self.stops, before)
        if place == len(self.stops) or self.stops[place] > self.cursor.round:
            return
        stop = self.stops[place]
        if self.cursor.round > stop or self.cursor.phase is LAST:
            self._park(Cursor(stop), last)
        self.playing = False


class Findings:
    """Where the breakpoints apply in a recording."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self._points: tuple[Breakpoint, ...] = ()

    def update(self, points: tuple[Breakpoint, ...], history: History) -> bool:
        """Look through the records anew if the list has changed. Returns whether it has."""
        if points == self._points:
            return False
        self._points = points
        watch = Watch(points)
        for record in history.since(0) if points else ():
            watch(record)
        self.hits = watch.hits
        return True

    @property
    def rounds(self) -> list[int]:
        """The rounds in which one applies, in order."""
        return sorted({hit.round for hit in self.hits})

    def at(self, number: int) -> list[Hit]:
        """What applies in a round."""
        return [hit for hit in self.hits if hit.round == number]


def told(hits: Iterable[Hit], most: int = 3) -> list[str]:
    """A line for each, and one for the rest."""
    lines = [hit.message for hit in hits]
    more = [f"and {len(lines) - most} more"] if len(lines) > most else []
    return [*lines[:most], *more]
