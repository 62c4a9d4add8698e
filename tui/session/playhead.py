"""Where the viewer is in time: following the live end, or parked in the past.

The playhead owns the cursor. It knows no screen and no clock of its own: it is
given the time, how many rounds there are, and what was asked for. New rounds
move it only while it follows; slow rounds are shown phase by phase.
"""

from __future__ import annotations

from tui.view.state.cursor import LAST, Cursor, Phase

SPEEDS: tuple[float | None, ...] = (0.5, 1.0, 2.0, 5.0, None)
"""Rounds a second; None: as fast as it goes."""

PHASED = 2.0
"""Up to this speed the phases of a round are shown one after the other."""

STEP_PACE = 0.18
"""Seconds a phase is shown after a single step, if nobody wants it otherwise."""

SLIDE = 0.7
"""Share of the last phase in which the rows move."""


class Playhead:
    """The cursor and how it moves."""

    def __init__(self, *, speed: float | None = None, animate: bool = True) -> None:
        self.cursor = Cursor()
        self.following = True
        self.playing = False
        """Walking through recorded rounds by itself."""
        self.speed = speed
        self.animate = animate
        self.step_pace = STEP_PACE
        """Seconds a phase is shown after a single step."""
        self._goal: int | None = None
        self._since = 0.0
        self._pace = 0.0
        self._slide = 1.0
        self._hold = False
        self._rested = 0.0

    @property
    def slide(self) -> float:
        """How far the rows have moved to their new columns, 0 … 1."""
        return self._slide if self.cursor.phase is LAST else 1.0

    @property
    def animating(self) -> bool:
        return self._goal is not None

    def tick(self, now: float, last: int, running: bool) -> bool:
        """Move on to `now`, with `last` rounds there. Returns whether anything changed."""
        before = (self.cursor, self.slide, self.following)
        if self._goal is not None:
            self._animate(now)
            if self.following and last > self.cursor.round + 1:
                self._settle(now)
        if self._goal is None:
            if self.following and last > self.cursor.round:
                self._arrive(now, last, running)
            elif self.playing:
                self._play(now, last)
        return before != (self.cursor, self.slide, self.following)

    def _arrive(self, now: float, last: int, running: bool) -> None:
        if self._hold:
            self._hold = False
            self.following = False
            self.cursor = Cursor(last, Phase.DRAFT)
        elif self.animate and (not running or (self.speed is not None and self.speed <= PHASED)):
            self._begin(now, last, running)
        else:
            self.cursor = Cursor(last, LAST)
            self._rested = now

    def _begin(self, now: float, number: int, running: bool) -> None:
        self.cursor = Cursor(number, Phase.DRAFT)
        self._goal = number
        self._since = now
        period = 1.0 / self.speed if self.speed and running else 4 * self.step_pace
        self._pace = min(0.6, 0.22 * period)

    def _animate(self, now: float) -> None:
        passed = (now - self._since) / self._pace if self._pace > 0 else 4.0
        phase = min(3, int(passed))
        assert self._goal is not None
        self.cursor = Cursor(self._goal, Phase(phase))
        self._slide = 1.0
        if phase == LAST:
            self._slide = min(1.0, (passed - 3.0) / SLIDE)
            if passed >= 4.0:
                self._settle(now)

    def _settle(self, now: float) -> None:
        if self._goal is not None:
            self.cursor = Cursor(self._goal, LAST)
        self._goal = None
        self._slide = 1.0
        self._rested = now

    def _play(self, now: float, last: int) -> None:
        if self.cursor.round >= last:
            self.playing = False
            self.following = True
            return
        speed = self.speed or 30.0
        slow = self.animate and speed <= PHASED
        wait = 0.12 / speed if slow else 1.0 / speed
        if now - self._rested < wait:
            return
        if slow:
            self._begin(now, self.cursor.round + 1, True)
            return
        steps = max(1, int((now - self._rested) * speed))
        self.cursor = Cursor(min(last, self.cursor.round + steps), LAST)
        self._rested = now

    def settle(self, now: float = 0.0) -> None:
        """End an animation at its goal."""
        self._settle(now)

    def _park(self, cursor: Cursor, last: int) -> None:
        self._settle(0.0)
        self.playing = False
        self._hold = False
        self.cursor = cursor
        self.following = cursor.round >= last and cursor.phase is LAST

    def next_round(self, now: float, last: int, count: int = 1) -> int:
        """Go `count` rounds on. Returns how many of them have yet to be made."""
        self._settle(now)
        number, phase = self.cursor
        goal = number + count - (1 if phase is not LAST else 0)
        if goal <= last:
            self._park(Cursor(goal, LAST), last)
            if count == 1 and self.animate and phase is LAST:
                self._begin(now, goal, False)
            return 0
        self._park(Cursor(last, LAST), last)
        return goal - last

    def next_phase(self, last: int) -> bool:
        """Go one phase on. Returns whether a round has to be made for that."""
        self._settle(0.0)
        goal = self.cursor.next_phase()
        if goal.round > last:
            self.following = True
            self._hold = True
            return True
        self._park(goal, last)
        return False

    def previous_round(self, last: int, count: int = 1) -> None:
        """Go back to the end of the round before; within a round to the one before it."""
        self._settle(0.0)
        self._park(Cursor(max(0, self.cursor.round - count), LAST), last)

    def previous_phase(self, last: int) -> None:
        self._settle(0.0)
        self._park(self.cursor.previous_phase(), last)

    def jump(self, number: int, last: int) -> None:
        self._park(Cursor(max(0, min(number, last)), LAST), last)

    def show(self, cursor: Cursor, last: int) -> None:
        """Stand at a phase of a round."""
        self._park(cursor, last)

    def follow(self, last: int) -> None:
        """To the live end, and stay there."""
        self._park(Cursor(last, LAST), last)

    def play(self, last: int) -> None:
        """Walk on from here by itself."""
        if self.cursor.phase is not LAST:
            self.cursor = Cursor(self.cursor.round, LAST)
        if self.cursor.round >= last:
            self.following = True
        else:
            self.playing = True

    def faster(self) -> float | None:
        return self._shift(1)

    def slower(self) -> float | None:
        return self._shift(-1)

    def _shift(self, step: int) -> float | None:
        place = SPEEDS.index(self.speed) if self.speed in SPEEDS else len(SPEEDS) - 1
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, place + step))]
        return self.speed
