"""Which stop the tour is at, and how it gets there: rounds are made, then walked up to the spot.

The guide knows no screen. It is given the time, asks the engine for rounds, moves the
playhead, and says when it has arrived. Whatever the viewer does in between is left alone.
"""

from __future__ import annotations

from enum import Enum

from engine.config.settings import Settings
from engine.runs.worker import State as WorkerState
from tui.session.control import Control
from tui.session.playhead import Playhead
from tui.tour.scene import Answers, Scene, Spot
from tui.tour.stops import STOPS, Moment, Stop
from tui.view.lines import Line
from tui.view.state.cursor import LAST, Cursor, Phase
from tui.view.state.timeline import Timeline

PACE = 6.0
"""Rounds a second on the way to a spot, at least."""

JOURNEY = 2.0
"""Seconds that the way takes at most."""

PHASE = 0.45
"""Seconds that a phase is shown on the last round of the way."""

SLOW = 0.45
"""The same where the rows are to be seen moving."""


def is_untouched(timeline: Timeline) -> bool:
    """Whether a run is as it began: no fault, no intervention, no failure."""
    return (
        timeline.failure is None
        and not timeline.changes
        and not any(record.fault for record in timeline.rounds)
    )


class State(Enum):
    """How far the guide has come."""

    SEEKING = "seeking"
    """The engine makes the rounds that are needed."""
    WALKING = "walking"
    """The cursor is on its way."""
    THERE = "there"
    LEFT = "left"
    """The viewer has left the tour; it waits where it was."""


class Guide:
    """Walks through the stops."""

    def __init__(self, stops: tuple[Stop, ...] = STOPS) -> None:
        self.stops = stops
        self.stop = 0
        self.moment = 0
        self.state = State.SEEKING
        self.scene: Scene | None = None
        """What the stop shows, once it is found."""
        self.missing = False
        """Whether the run does not show it."""
        self._begun = False
        self._timeline: object = None
        self._stepped = 0.0
        self._pace = PACE

    @property
    def now(self) -> Stop:
        return self.stops[self.stop]

    @property
    def moment_now(self) -> Moment:
        return self.now.moments[self.moment]

    @property
    def is_last(self) -> bool:
        return self.stop == len(self.stops) - 1 and self.moment == len(self.now.moments) - 1

    def next(self) -> bool:
        """The next moment, or the next stop. Returns False at the end of the tour."""
        if self.is_last:
            return False
        if self.moment + 1 < len(self.now.moments):
            self.go(self.stop, self.moment + 1)
        else:
            self.go(self.stop + 1)
        return True

    def previous(self) -> bool:
        if self.moment:
            self.go(self.stop, self.moment - 1)
        elif self.stop:
            self.go(self.stop - 1, len(self.stops[self.stop - 1].moments) - 1)
        else:
            return False
        return True

    def go(self, stop: int, moment: int = 0) -> None:
        self.stop, self.moment = stop, moment
        self.back()

    def back(self) -> None:
        """To the present stop, wherever the viewer is."""
        self.state = State.SEEKING
        self.scene, self.missing = None, False
        self._begun = False

    def leave(self) -> None:
        self.state = State.LEFT

    def is_at_stop(self, control: Control, cursor: Cursor) -> bool:
        """Whether what is on the screen is what the stop is about."""
        scene = self.scene
        if self.state is not State.THERE:
            return self.state is not State.LEFT
        if control.timeline is not self._timeline:
            return False
        return scene is None or cursor == scene.spot.cursor

    def words(self) -> Line:
        """What the records say, as far as they have been found."""
        if self.scene is not None:
            return self.moment_now.words(self.scene)
        return [(self.moment_now.otherwise, "dim")] if self.missing else []

    def tick(
        self, now: float, control: Control, playhead: Playhead, base: Settings, answers: Answers
    ) -> bool:
        """Go on with the way to the stop. Returns whether the guide has just arrived."""
        if self.state is State.SEEKING:
            self._seek(now, control, playhead, base, answers)
        if self.state is State.WALKING:
            return self._walk(now, control, playhead)
        return False

    def _seek(
        self, now: float, control: Control, playhead: Playhead, base: Settings, answers: Answers
    ) -> None:
        settings = self.now.settings(base)
        timeline = control.timeline
        if self._begun and timeline.failure is not None:
            self.leave()
            return
        own = control.settings == settings and is_untouched(timeline)
        if not self._begun and not own:
            self._begun = True
            control.failed = False
            control.restart(settings, paused=True)
            playhead.jump(0, 0)
            playhead.following = False
            return
        if timeline.header is None:
            return
        if control.worker.running:
            control.worker.pause()
        over = control.state.ended
        wanted = self.now.rounds
        if timeline.last >= wanted or over:
            spot = self.moment_now.find(timeline, answers)
            if spot is not None or over or timeline.last >= self.now.most:
                self._found(now, control, playhead, spot, answers)
                return
            wanted = timeline.last + 2
        self._ask(control, wanted)
        if playhead.cursor.round == 0:
            playhead.following = False

    def _ask(self, control: Control, wanted: int) -> None:
        """Have the engine make rounds, unless it is at it."""
        missing = wanted - control.timeline.last
        if missing > 0 and control.worker.state is WorkerState.PAUSED:
            control.worker.step(missing)

    def _found(
        self, now: float, control: Control, playhead: Playhead, spot: Spot | None, answers: Answers
    ) -> None:
        timeline = control.timeline
        self._timeline = timeline
        if spot is None:
            self.missing = True
            spot = Spot(Cursor(timeline.last), 0)
            self.state = State.THERE
            playhead.jump(timeline.last, timeline.last)
            return
        self.scene = Scene(timeline, spot, answers)
        self.state = State.WALKING
        self._stepped = now
        goal, here = spot.cursor, playhead.cursor
        if not playhead.animate:
            playhead.show(goal, timeline.last)
        elif here.round > goal.round or (here.round == goal.round and here.phase >= goal.phase):
            if here != goal:
                playhead.jump(goal.round - 1, timeline.last)
        elif here.phase is not LAST and here.round < goal.round:
            playhead.jump(here.round, timeline.last)
        self._pace = max(PACE, (goal.round - playhead.cursor.round) / JOURNEY)

    def _walk(self, now: float, control: Control, playhead: Playhead) -> bool:
        assert self.scene is not None
        goal, here, last = self.scene.spot.cursor, playhead.cursor, control.timeline.last
        if here == goal and not playhead.animating:
            playhead.following = False  # rounds that are still to come are not what is shown
            self.state = State.THERE
            return True
        if playhead.animating:
            return False
        if here.round < goal.round - 1:
            if now - self._stepped >= 1.0 / self._pace:
                self._stepped = now
                playhead.jump(here.round + 1, last)
        elif goal.phase is LAST and here.round < goal.round:
            playhead.step_pace, usual = SLOW, playhead.step_pace
            playhead.next_round(now, last)
            playhead.step_pace = usual
        elif now - self._stepped >= (PHASE if here.phase is not LAST else 1.0 / self._pace):
            self._stepped = now
            following = Cursor(goal.round, Phase.DRAFT) if here.round < goal.round else None
            playhead.show(following or here.next_phase(), last)
        if playhead.cursor > goal:
            playhead.show(goal, last)
        return False
