"""Breakpoints over a recording: where they apply is known at once, and playing stops there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from threading import Thread

from engine.microscope.breakpoints import Breakpoint, Hit
from engine.microscope.watch import Watch
from engine.records.schema import Record, RunHeader, TickRecord
from tui.session.playhead import Playhead
from tui.view.sentences import hit_words
from tui.view.state.cursor import LAST, Cursor


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
    """Where the breakpoints apply in a recording, which is read again for that.

    It is read in a thread of its own: keys are heard meanwhile.

    Args:
        read: opens the recording from its beginning.
    """

    def __init__(self, read: Callable[[], Iterable[Record]]) -> None:
        self.rounds: list[int] = []
        """The rounds in which one applies, in order; of a comparison the ticks."""
        self._hits: dict[int, list[Hit]] = {}
        self._read = read
        self._points: tuple[Breakpoint, ...] = ()

    def update(self, points: tuple[Breakpoint, ...]) -> None:
        """Look through the recording anew if the list has changed."""
        if points == self._points:
            return
        self._points = points
        self.rounds, self._hits = [], {}
        if points:
            Thread(target=self._look, args=(points,), daemon=True).start()

    def at(self, number: int) -> list[Hit]:
        """What applies in a round, or in a tick."""
        return self._hits.get(number, [])

    def _look(self, points: tuple[Breakpoint, ...]) -> None:
        watch = Watch(points)
        hits: dict[int, list[Hit]] = {}
        lanes, forks, tick, seen = 1, dict[int, int](), 0, 0
        for record in self._read():
            if self._points != points:
                return
            watch(record)
            if isinstance(record, RunHeader):
                lanes = record.lanes
                if record.fork is not None:
                    forks[record.lane] = record.fork
            for hit in watch.hits[seen:]:
                if hit.round > forks.get(hit.lane, -1):  # what is shared is reported once
                    hits.setdefault(tick + 1 if lanes > 1 else hit.round, []).append(hit)
            seen = len(watch.hits)
            if isinstance(record, TickRecord):
                tick = record.tick
        if lanes > 1 and tick and tick + 1 in hits:  # found out when the lanes were done
            hits.setdefault(tick, []).extend(hits.pop(tick + 1))
        self.rounds, self._hits = sorted(hits), hits


def hit_lines(hits: Iterable[Hit], most: int = 3) -> list[str]:
    """A line for each, and one for the rest."""
    lines = [hit_words(hit) for hit in hits]
    more = [f"and {len(lines) - most} more"] if len(lines) > most else []
    return [*lines[:most], *more]
