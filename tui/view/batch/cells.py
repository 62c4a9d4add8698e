"""A row of the batch as it lies in memory: segments of like cells, from the records' spans."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from engine.records.row import RowRound, Span
from tui.view.state.cursor import Phase


class Kind(Enum):
    """What a cell is. Each has its own glyph, attribute and colour."""

    EMPTY = "empty"
    PAD = "pad"
    PROMPT = "prompt"
    COMMITTED = "committed"
    ACCEPTED = "accepted"
    BONUS = "bonus"
    PROPOSED = "drafted"
    REJECTED = "rejected"
    STALE = "stale"
    GHOST = "ghost"
    DIVERGED = "diverged"
    """The first token of the row that is not the oracle's."""


MARK = {
    Kind.EMPTY: " ",
    Kind.PAD: "·",
    Kind.PROMPT: "",
    Kind.COMMITTED: "",
    Kind.ACCEPTED: "✓",
    Kind.BONUS: "★",
    Kind.PROPOSED: "?",
    Kind.REJECTED: "✗",
    Kind.STALE: "~",
    Kind.GHOST: "≈",
    Kind.DIVERGED: "≠",
}
"""The sign in front of a cell's text."""

NARROW = {**MARK, Kind.PROMPT: "▫", Kind.COMMITTED: "▪"}
"""The sign that stands for a cell when there is no room for its text."""

LINE = {
    Kind.EMPTY: " ",
    Kind.PAD: "·",
    Kind.PROMPT: "─",
    Kind.COMMITTED: "━",
    Kind.ACCEPTED: "━",
    Kind.BONUS: "★",
    Kind.PROPOSED: "?",
    Kind.REJECTED: "✗",
    Kind.STALE: "╌",
    Kind.GHOST: "≈",
    Kind.DIVERGED: "≠",
}
"""The sign that stands for many cells of one kind."""

WEIGHT = {
    Kind.EMPTY: 0,
    Kind.PROMPT: 1,
    Kind.COMMITTED: 1,
    Kind.PAD: 1,
    Kind.ACCEPTED: 2,
    Kind.BONUS: 3,
    Kind.PROPOSED: 2,
    Kind.REJECTED: 2,
    Kind.STALE: 4,
    Kind.GHOST: 5,
    Kind.DIVERGED: 99,
}
"""Who wins when one sign must stand for cells of several kinds."""


class Segment(NamedTuple):
    """Neighbouring cells of one kind."""

    start: int
    """Column of the first cell."""
    length: int
    kind: Kind
    first: int = -1
    """Index of the first cell's token in the row; −1: not tokens of the row."""
    tokens: tuple[int, ...] = ()
    """Token ids of the cells where they are not the row's own."""
    position: int | None = None
    """Position fed for the first cell; the next ones count up."""
    attended: bool = False
    cached: bool = True
    """Whether the cells have K/V in the cache."""
    beyond: bool = False
    """Whether they lie beyond the sliding window of the layers that have one."""

    @property
    def end(self) -> int:
        return self.start + self.length


class Cell(NamedTuple):
    """One column of one row."""

    kind: Kind
    token: int | None = None
    """Token id, where it is known and not one of the row's own."""
    place: int = -1
    """Which of the row's tokens it is."""
    position: int | None = None
    attended: bool = False
    cached: bool = True
    beyond: bool = False


BLANK = Cell(Kind.EMPTY)


def cell_at(segment: Segment, column: int) -> Cell:
    offset = column - segment.start
    return Cell(
        segment.kind,
        segment.tokens[offset] if offset < len(segment.tokens) else None,
        segment.first + offset if segment.first >= 0 else -1,
        None if segment.position is None else segment.position + offset,
        segment.attended,
        segment.cached,
        segment.beyond,
    )


def window(segments: Sequence[Segment], start: int, end: int) -> list[Cell]:
    """The cells of columns `start … end − 1`."""
    cells = [BLANK] * max(0, end - start)
    for segment in segments:
        for column in range(max(start, segment.start), min(end, segment.end)):
            cells[column - start] = cell_at(segment, column)
    return cells


def overview(segments: Sequence[Segment], start: int, end: int, width: int) -> list[Kind]:
    """The columns `start … end − 1` in `width` signs, many columns to a sign."""
    kinds = [Kind.EMPTY] * width
    columns = end - start
    if columns <= 0 or width <= 0:
        return kinds
    covered = [0.0] * width
    scale = width / columns
    for segment in segments:
        low = (max(start, segment.start) - start) * scale
        high = (min(end, segment.end) - start) * scale
        if high <= low:
            continue
        weight = WEIGHT[segment.kind]
        for place in range(int(low), min(width, int(high - 1e-9) + 1)):
            share = (min(high, place + 1) - max(low, place)) * weight
            if share > covered[place]:
                covered[place] = share
                kinds[place] = segment.kind
    return kinds


def _content(
    span: Span, column: int, prompt: int, before: int, accepted: int, bonus: int, cached: int
) -> list[Segment]:
    """Split committed tokens into the prompt's, the earlier ones, this round's, and the bonus."""
    edges = (
        (0, prompt, Kind.PROMPT),
        (prompt, before, Kind.COMMITTED),
        (before, accepted, Kind.ACCEPTED),
        (accepted, bonus, Kind.BONUS),
        (bonus, span.first + span.length, Kind.COMMITTED),
    )
    ghost = span.kind == "ghost"
    out: list[Segment] = []
    for low, high, kind in edges:
        begin, end = max(low, span.first), min(high, span.first + span.length)
        for part_begin, part_end, in_cache in (
            (begin, min(end, cached), True),
            (max(begin, cached), end, False),
        ):
            if part_end <= part_begin:
                continue
            offset = part_begin - span.first
            out.append(
                Segment(
                    column + offset,
                    part_end - part_begin,
                    Kind.GHOST if ghost and in_cache else kind,
                    part_begin,
                    span.tokens[offset : offset + part_end - part_begin],
                    None if span.position is None else span.position + offset,
                    span.attended,
                    in_cache,
                    span.beyond,
                )
            )
    return out


def _other(span: Span, column: int) -> Segment:
    kind = Kind.PAD if span.kind == "pad" else Kind.STALE
    return Segment(
        column,
        span.length,
        kind,
        -1,
        span.tokens,
        span.position,
        span.attended,
        span.kind == "stale",
        span.beyond,
    )


def kept(row: RowRound, prompt: int, shift: int = 0) -> list[Segment]:
    """The row after synchronisation, its cells moved by `shift` columns."""
    committed = row.before + len(row.committed)
    has_bonus = row.bonus is not None and len(row.committed) > row.accepted
    accepted = committed - 1 if has_bonus else committed
    before = max(row.before, prompt)
    out: list[Segment] = []
    column = 0
    if shift > 0 and not (row.kept and row.kept[0].kind == "pad"):
        out.append(Segment(0, shift, Kind.PAD))
    for span in row.kept:
        if span.kind in ("content", "ghost"):
            place = column + shift
            out.extend(_content(span, place, prompt, before, accepted, committed, committed - 1))
        elif span.kind == "pad" and column == 0 and shift:
            length = max(0, span.length + shift)
            if length:
                out.append(_other(span, 0)._replace(length=length))
        else:
            out.append(_other(span, column + shift))
        column += span.length
    return out


def fed(row: RowRound, prompt: int, phase: Phase) -> list[Segment]:
    """The row as the target read it, its block verified as far as the phase has come."""
    out: list[Segment] = []
    column = 0
    block = -1
    count = len(row.draft_token_ids)
    for span in row.fed:
        begin = 0
        if block >= 0 and column < block + count and span.kind != "content":
            begin = min(span.length, block + count - column)
            offset = column - block
            out.extend(_block(row, span, column, offset, begin, phase))
        if begin < span.length:
            if span.kind in ("content", "ghost"):
                end = row.before
                out.extend(_content(span, column, prompt, end, end, end, row.before - 1))
            else:
                rest = _other(span, column)
                out.append(_tail(rest, begin))
        column += span.length
        if span.kind in ("content", "ghost") and span.first + span.length == row.before:
            block = column
    if block >= 0 and phase >= Phase.ACCEPT and row.bonus is not None:
        accepted = len(row.committed) - 1
        if accepted >= 0:
            out = _with_bonus(out, block + accepted, row)
    return out


def _tail(segment: Segment, begin: int) -> Segment:
    if begin == 0:
        return segment
    position = segment.position
    return segment._replace(
        start=segment.start + begin,
        length=segment.length - begin,
        tokens=segment.tokens[begin:],
        position=None if position is None else position + begin,
    )


def _block(
    row: RowRound, span: Span, column: int, offset: int, length: int, phase: Phase
) -> list[Segment]:
    """Cells `offset … offset + length − 1` of the draft tokens, which lie in `span`."""
    if phase is Phase.DRAFT:
        edge = len(row.draft_token_ids)
        kinds = (Kind.PROPOSED, Kind.PROPOSED)
    else:
        edge = min(row.accepted, len(row.committed))
        kinds = (Kind.ACCEPTED, Kind.REJECTED)
    out: list[Segment] = []
    for low, high, kind in ((0, edge, kinds[0]), (edge, len(row.draft_token_ids), kinds[1])):
        begin, end = max(low, offset), min(high, offset + length)
        if end <= begin:
            continue
        shift = begin - offset
        position = span.position
        if position is None:
            at = begin + 1
            position = row.positions[at] if at < len(row.positions) else None
        else:
            position += shift
        committed = kind is Kind.ACCEPTED and phase >= Phase.ACCEPT
        out.append(
            Segment(
                column + shift,
                end - begin,
                kind,
                row.before + begin if committed else -1,
                row.draft_token_ids[begin:end],
                position,
                span.attended,
                True,
            )
        )
    return out


def _with_bonus(segments: list[Segment], column: int, row: RowRound) -> list[Segment]:
    """Lay the bonus over the first rejected draft token, or after the last one."""
    out: list[Segment] = []
    for segment in segments:
        if not segment.start <= column < segment.end:
            out.append(segment)
            continue
        left = column - segment.start
        if left:
            out.append(segment._replace(length=left, tokens=segment.tokens[:left]))
        if left + 1 < segment.length:
            out.append(_tail(segment, left + 1))
    index = row.before + len(row.committed) - 1
    bonus = (row.committed[-1],)
    out.append(Segment(column, 1, Kind.BONUS, index, bonus, None, True, False))
    out.sort(key=lambda segment: segment.start)
    return out
