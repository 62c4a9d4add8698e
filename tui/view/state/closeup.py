"""A row looked at closely: which of its rounds, and which of its tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.records.row import RowRound
from tui.view.lines import Line
from tui.view.state.cursor import LAST, Cursor
from tui.view.state.frame import Frame
from tui.view.state.origin import Origin, origin_of, row_of


@dataclass(frozen=True)
class CloseUp:
    """What the inspector looks at."""

    frame: Frame
    """Its cursor stands in the round that is shown."""
    row: RowRound
    origin: Origin | None
    """The token that is looked at."""
    waits: int = 0
    """The round at the cursor, where the row took no part in it; 0: it did."""


def close_up(frame: Frame, place: int | None) -> CloseUp | None:
    """The selected row at the cursor: its latest round, and one of its tokens.

    Args:
        place: index of the token among the row's own; None: the last one.
    """
    timeline, selected = frame.timeline, frame.selected
    if selected is None or selected not in timeline.tracks:
        return None
    number = frame.cursor.round
    entry, waits = row_of(frame.record, selected), 0
    if entry is None:
        track = timeline.tracks[selected]
        count = track.count_at(number)
        if not count:
            return None
        waits, number = number, track.rounds[count - 1]
        entry = row_of(timeline.round_at(number), selected)
        if entry is None:
            return None
        frame = replace(frame, cursor=Cursor(number, LAST), slide=1.0)
    seen = frame.committed_round
    length = timeline.tracks[selected].length_at(seen)
    at = length - 1 if place is None else max(0, min(place, length - 1))
    return CloseUp(frame, entry, origin_of(timeline, selected, at, seen), waits)


def title(look: CloseUp) -> Line:
    number, phase = look.frame.cursor
    line: Line = [(f"row {look.row.row}", "strong"), (f"  round {number}", "text")]
    if phase is not LAST:
        line.append((f", {phase.word}", "text"))
    line.append(("  " + look.frame.method.upper(), "method"))
    if look.waits:
        line.append((f"  the row takes no part in round {look.waits}", "parked"))
    return line


def waiting_title(frame: Frame) -> Line:
    """Of a row that has taken part in no round yet."""
    if frame.selected is None:
        return [("no row", "strong")]
    return [
        (f"row {frame.selected}", "strong"),
        (f"  round {frame.cursor.round}", "text"),
        ("  " + frame.method.upper(), "method"),
    ]


def waiting_words(frame: Frame) -> str:
    """Why there is nothing to see of such a row."""
    track = None if frame.selected is None else frame.timeline.tracks.get(frame.selected)
    if track is None:
        return "there is no row to look at"
    if track.error:
        return f"the row cannot run: {track.error}"
    if not frame.cursor.round:
        return "no round has been made yet"
    return f"the row has not begun by round {frame.cursor.round}: it waits for its turn"


def prob_words(value: float) -> str:
    """A probability in five signs."""
    return f"{value:.3f}" if value >= 0.0005 or value == 0.0 else "<.001"
