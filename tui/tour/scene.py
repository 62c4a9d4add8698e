"""A place of the tour in the records: where to look, and what is to be read there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

from engine.records.row import RowRound
from engine.records.schema import RoundRecord
from tui.view.state.cursor import LAST, Cursor, Phase
from tui.view.state.timeline import Timeline

Answers = Mapping[int, tuple[int, ...]]
"""What a correct method has answered to each row, as far as it has come."""


class Spot(NamedTuple):
    """A cursor, and the row that is looked at."""

    cursor: Cursor
    row: int


class Scene(NamedTuple):
    """A spot in a run, with what the words of a stop may read."""

    timeline: Timeline
    spot: Spot
    answers: Answers

    @property
    def number(self) -> int:
        return self.spot.cursor.round

    @property
    def record(self) -> RoundRecord:
        record = self.timeline.round_at(self.number)
        assert record is not None
        return record

    @property
    def row(self) -> RowRound:
        return next(row for row in self.record.rows if row.row == self.spot.row)

    def pieces(self, tokens: tuple[int, ...]) -> str:
        """The tokens' text in quotes, safe to show."""
        return "“" + "".join(self.timeline.piece(token) for token in tokens).strip() + "”"


class FirstDifference(NamedTuple):
    """The first token of a row that is not what a correct method says."""

    row: int
    round: int
    place: int
    """Index among the generated tokens."""
    got: int
    due: int


def first_difference(timeline: Timeline, answers: Answers, row: int) -> FirstDifference | None:
    """Where a row leaves the right answer; None: nowhere yet, or it is not known."""
    track = timeline.tracks.get(row)
    if track is None:
        return None
    said = track.tokens[track.prompt_length :]
    for place, (got, due) in enumerate(zip(said, answers.get(row, ()), strict=False)):
        if got != due:
            entry = bisect_right(track.ends, track.prompt_length + place)
            return FirstDifference(row, track.rounds[entry], place, got, due)
    return None


def spot(number: int, row: int, phase: Phase = LAST) -> Spot:
    return Spot(Cursor(number, phase), row)
