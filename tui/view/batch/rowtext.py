"""A row's text in one line: its end, and where it leaves the oracle, with what was due."""

from __future__ import annotations

from rich.cells import cell_len

from engine.records.match import RowDivergence
from tui.view.lines import Line, crop, width_of
from tui.view.showable import showable
from tui.view.state.compare import LaneFrame
from tui.view.state.timeline import BLANK, Timeline
from tui.view.state.track import RowTrack

CONTEXT = 16
"""Cells of agreement that stay in view in front of the first wrong token."""

FORK = "⋔"
"""Where the lanes of a fork part."""

RIGHT, WRONG = ("text", "accepted"), ("wrong", "wrong")
"""Styles of earlier tokens and of this round's, before the difference and after it."""


def row_text(look: LaneFrame, row: int, width: int, margin: str = "") -> Line:
    """The line, exactly `width` cells wide."""
    timeline = look.frame.timeline
    track = timeline.tracks.get(row)
    if track is None:
        return crop([], width)
    line: Line = [(margin, "text")]
    end = _end(look, track)
    room = max(1, width - cell_len(margin) - width_of(end) - 1)
    fresh = _fresh(look, track)
    own = _own(look, track)
    entry = look.match.divergence_at(row, look.number)
    if track.error:
        line.append((showable(track.error), "broken"))
        return crop(line, width)
    if entry is None:
        line += _tail(timeline, own, 0, len(own), fresh, room, RIGHT, _fork(look, track))
    else:
        line += _diverged(look, track, own, fresh, room, entry)
    if end:
        return [*crop(line, width - width_of(end)), *end]
    return crop([*line, ("▌", "dim")], width)


def _length(look: LaneFrame, track: RowTrack) -> int:
    """New tokens of the row at this cursor."""
    return track.length_at(look.number) - track.prompt_length


def _own(look: LaneFrame, track: RowTrack) -> list[int]:
    """Those tokens. The row may have gone back since, and have others now."""
    return track.tokens_at(look.number)[track.prompt_length : track.length_at(look.number)]


def _fork(look: LaneFrame, track: RowTrack) -> int | None:
    """The first new token that was made after the lanes of a fork had diverged."""
    if look.fork is None or look.number < look.fork:
        return None
    return track.length_at(look.fork) - track.prompt_length


def _fresh(look: LaneFrame, track: RowTrack) -> int:
    """Where this round's tokens begin."""
    number = look.number
    count = track.count_at(number)
    if not count or track.rounds[count - 1] != number:
        return _length(look, track)
    before = track.ends[count - 2] if count > 1 else track.prompt_length
    return before - track.prompt_length


def _end(look: LaneFrame, track: RowTrack) -> Line:
    if track.finished_at(look.number):
        return [(f" ■ {track.finish_reason}", "dim")]
    return []


def _diverged(
    look: LaneFrame,
    track: RowTrack,
    own: list[int],
    fresh: int,
    room: int,
    entry: RowDivergence,
) -> Line:
    """Agreement, what was due, what came instead, and what came of that."""
    timeline, count = look.frame.timeline, len(own)
    found = entry.divergence
    at = found.position
    sign: Line = []
    if found.expected is not None:
        due = _due(look, timeline, found.expected)
        if due.startswith(" "):
            sign.append((" ", "text"))
        sign.append((f"‹{due.strip(' ') or BLANK}›", "due"))
    if found.got is not None:
        piece = timeline.piece(found.got).removeprefix(" ")
        sign.append((f"≠{piece}", "diverged"))
        at += 1
    room -= width_of(sign)
    fork = _fork(look, track)
    after = _tail(timeline, own, at, count, fresh, max(0, room), WRONG, fork)
    rest = room - width_of(after)
    whole = _size(timeline, own, at, count) <= room - CONTEXT
    if not whole and room > CONTEXT + 8:
        cut = room - CONTEXT - 1
        after = [(" ", "dim"), *_tail(timeline, own, at, count, fresh, cut, WRONG, fork)]
        rest = CONTEXT
    before = _tail(timeline, own, 0, found.position, fresh, max(0, rest), RIGHT, fork)
    return [*before, *sign, *after]


def _due(look: LaneFrame, timeline: Timeline, token: int) -> str:
    """The text of a token that the oracle chose; the lane may never have met it."""
    text = look.match.oracle.pieces.get(token)
    return timeline.piece(token) if text is None else showable(text)


def _size(timeline: Timeline, own: list[int], begin: int, end: int) -> int:
    """Cells of these tokens, as far as a line can hold."""
    if end - begin > 400:
        return 400
    return sum(cell_len(timeline.piece(token)) for token in own[begin:end])


def _tail(
    timeline: Timeline,
    own: list[int],
    begin: int,
    end: int,
    fresh: int,
    room: int,
    styles: tuple[str, str],
    fork: int | None = None,
) -> Line:
    """The last of the tokens `begin … end − 1` that fit; this round's in the second style.

    The sign of a fork stands before token `fork`, or behind the last one if that is to come.

    Args:
        own: the row's new tokens, as the round at the cursor saw them.
    """
    taken: Line = []
    used = 0
    if fork == end and room > 1:
        taken.append((FORK, "parked"))
        used += 1
    for place in range(end - 1, begin - 1, -1):
        piece = timeline.piece(own[place])
        if place == begin and begin == 0:
            piece = piece.removeprefix(" ")
        size = cell_len(piece)
        if used + size > room - (1 if place > begin else 0):
            if used < room:
                taken.append(("…", "dim"))
            break
        taken.append((piece, styles[place >= fresh]))
        used += size
        if place == fork and used < room:
            taken.append((FORK, "parked"))
            used += 1
    taken.reverse()
    return taken
