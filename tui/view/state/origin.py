"""Where a token of a row came from: the round that made it, and who drafted it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.records.row import RowRound
from engine.records.schema import RoundRecord
from tui.view.state.timeline import Timeline
from tui.view.state.track import RowTrack


@dataclass(frozen=True)
class Origin:
    """One committed token of a row."""

    place: int
    """Its index among the row's tokens, the prompt's among them."""
    token: int
    number: int = 0
    """The round that committed it; 0: it is of the prompt."""
    row: RowRound | None = None
    offset: int = 0
    """Its place among the tokens that the round committed."""

    @property
    def is_draft_token(self) -> bool:
        return self.row is not None and self.offset < self.row.accepted


def origin_of(timeline: Timeline, row: int, place: int, number: int) -> Origin | None:
    """Where token `place` of a row came from, as round `number` sees it."""
    track = timeline.tracks.get(row)
    if track is None or not 0 <= place < track.length_at(number):
        return None
    token = track.tokens_at(number)[place]
    if place < track.prompt_length:
        return Origin(place, token)
    made = _round_of(track, place, number)
    record = timeline.round_at(made)
    entry = row_of(record, row)
    if entry is None:
        return Origin(place, token)
    return Origin(place, token, made, entry, place - entry.before)


def _round_of(track: RowTrack, place: int, number: int) -> int:
    """The latest round up to `number` that made this token."""
    for at in range(track.count_at(number) - 1, -1, -1):
        before = track.ends[at - 1] if at else track.prompt_length
        if before <= place < track.ends[at]:
            return track.rounds[at]
    return 0


def row_of(record: RoundRecord | None, row: int) -> RowRound | None:
    """A row's part of a round."""
    rows = record.rows if record is not None else ()
    return next((entry for entry in rows if entry.row == row), None)
