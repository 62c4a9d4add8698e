"""The batch at a cursor: its rows as segments, and the figures beside them."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.records.row import RowRound, Span
from engine.records.schema import RoundRecord
from tui.view.batch import cells
from tui.view.batch.cells import Kind, Segment
from tui.view.sentences import schedule_words
from tui.view.state.completed import CACHELESS, figure, has_length
from tui.view.state.cursor import LAST, Phase
from tui.view.state.frame import Frame

LEFT_ALIGNED = ("slotspec", "bsp")
"""Methods whose rows begin at column 0."""


@dataclass(frozen=True)
class TensorRow:
    """One row of the batch. A figure that is None is not known."""

    row: int
    place: int
    segments: list[Segment]
    padding: int | None
    content: int
    delta: int | None
    kv_length: int | None
    positions: tuple[int, int] | None
    """First and last position of the row's content."""
    debris: tuple[int, ...] = ()
    """Rejected draft tokens that are no longer in memory."""
    finish_reason: str = ""
    parked: bool = False
    """Whether the row takes no part in the round."""
    note: str = ""
    """Why it is where it is, in a word or two."""
    accepted: int | None = None
    drafted: int = 0
    by_text: bool = False
    """Whether the draft tokens are text, and no model's."""
    broken: bool = False
    end: int = 0
    """Columns that the row needs at most in this round."""
    edge: int | None = None
    """Where the row ends, where that is its own affair; None: at the rectangle's edge."""


@dataclass(frozen=True)
class TensorView:
    """The batch as it lies in memory."""

    rows: list[TensorRow] = field(default_factory=list)
    edge: int = 0
    """Columns of the rectangle."""
    edge_known: bool = True
    """Whether the record tells them."""
    end: int = 0
    """Columns that the round needs at most, in any of its phases."""
    own_tails: bool = False
    """Whether each row is looked at around its own end (slots, ragged rows)."""
    block: int = 0
    """Draft tokens of the longest row."""


def tensor_view(frame: Frame) -> TensorView:
    """The batch at the frame's cursor."""
    record = frame.record
    if record is None:
        return _prompts(frame)
    phase = frame.cursor.phase
    broken = {violation.row for violation in record.violations} if phase is LAST else set()
    rows = [row_at(frame, record, row, row.row in broken) for row in record.rows]
    block = max((len(row.draft_token_ids) for row in record.rows), default=0)
    before = record.length_before
    edge = before + block
    if phase is LAST:
        edge = record.length
        if record.kind != "slots":
            # Rows that left at the end of the round are still shown as they were.
            edge = max(edge, *(_width(row) for row in record.rows), 0)
    widest = max((row.segments[-1].end for row in rows if row.segments), default=0)
    end = max(before + block + 1, record.length, widest)
    own_tails = record.kind == "slots" or _ragged(record)
    return TensorView(rows, edge, has_length(record), end, own_tails, block)


def _ragged(record: RoundRecord) -> bool:
    """Whether a pool's rows are kept at different lengths: no rectangle."""
    return (
        record.kind != "batch"
        and len({_width(row) for row in record.rows if not row.finish_reason}) > 1
    )


def row_at(frame: Frame, record: RoundRecord, row: RowRound, broken: bool) -> TensorRow:
    """One row at the frame's cursor."""
    phase = frame.cursor.phase
    track = frame.timeline.tracks.get(row.row)
    prompt = track.prompt_length if track else 0
    if phase is not LAST:
        segments = in_cache(cells.fed(row, prompt, phase), frame.method)
        committed = row.before + (len(row.committed) if phase is Phase.ACCEPT else 0)
        return TensorRow(
            row=row.row,
            place=row.place,
            segments=segments,
            padding=figure(row.padding - row.delta, row),
            content=committed,
            delta=None,
            kv_length=_cached(frame, row, row.before - 1),
            positions=_positions(segments),
            note=schedule_words(record, row, brief=True),
            accepted=row.accepted if phase >= Phase.VERIFY else None,
            drafted=len(row.draft_token_ids),
            by_text=row.by_text,
            end=_leading_pad(row.fed) + row.before + len(row.draft_token_ids) + 1,
        )
    shift = -round(row.delta * (1.0 - frame.slide)) if row.delta else 0
    if row.finish_reason:
        # It has left the batch: it stays in the columns where it was.
        shift = max(0, _leading_pad(row.fed) - _leading_pad(row.kept))
    segments = in_cache(cells.kept(row, prompt, shift), frame.method)
    stale = any(segment.kind in (Kind.STALE, Kind.GHOST) for segment in segments)
    return TensorRow(
        row=row.row,
        place=row.place,
        segments=segments,
        padding=figure(row.padding + (shift if row.finish_reason else 0), row),
        content=row.content,
        delta=figure(row.delta, row),
        kv_length=_cached(frame, row, row.kv_length),
        positions=_positions(segments),
        debris=() if stale else _debris(row),
        finish_reason=row.finish_reason or "",
        note=schedule_words(record, row, brief=True),
        accepted=row.accepted,
        drafted=len(row.draft_token_ids),
        by_text=row.by_text,
        broken=broken,
        end=_leading_pad(row.kept) + row.before + len(row.draft_token_ids) + 1,
        edge=_width(row),
    )


def _cached(frame: Frame, row: RowRound, count: int) -> int | None:
    """Slots of the target's cache that hold committed tokens, where the record tells them."""
    if frame.method in CACHELESS:
        return 0
    return count if row.kept or row.kv_length else None


def in_cache(segments: list[Segment], method: str) -> list[Segment]:
    """The segments as this method keeps them: without K/V where it has no cache."""
    if method not in CACHELESS:
        return segments
    return [segment._replace(cached=False) for segment in segments]


def _debris(row: RowRound) -> tuple[int, ...]:
    """The draft tokens that were not taken (dsd takes the first wrong one as its bonus)."""
    left = row.draft_token_ids[min(row.accepted, len(row.committed)) :]
    taken = len(row.committed) > row.accepted and left[:1] == row.committed[-1:]
    return left[1:] if taken else left


def _width(row: RowRound) -> int:
    """Columns of the row after the round."""
    left = max(0, _leading_pad(row.fed) - _leading_pad(row.kept)) if row.finish_reason else 0
    return left + sum(span.length for span in row.kept)


def _leading_pad(spans: tuple[Span, ...]) -> int:
    return spans[0].length if spans and spans[0].kind == "pad" else 0


def _positions(segments: list[Segment]) -> tuple[int, int] | None:
    """The first and the last position of the row's own tokens."""
    own = [s for s in segments if s.first >= 0 and s.position is not None]
    if not own:
        return None
    first, last = own[0], own[-1]
    assert first.position is not None
    assert last.position is not None
    return first.position, last.position + last.length - 1


def _prompts(frame: Frame) -> TensorView:
    """Before round 1: the first batch's prompts, laid out as the method will."""
    timeline = frame.timeline
    size = frame.setting("batch_size", 4)
    count = size if isinstance(size, int) else 4
    tracks = [track for track in timeline.tracks.values() if not track.prompt.error][:count]
    longest = max((track.prompt_length for track in tracks), default=0)
    left = frame.method in LEFT_ALIGNED
    block = frame.setting("draft_tokens", 0)
    room = block if isinstance(block, int) else 5
    rows = []
    for place, track in enumerate(tracks):
        pad = longest - track.prompt_length
        column = 0 if left else pad
        content = Segment(column, track.prompt_length, Kind.PROMPT, 0, (), 0, True, False)
        padding = Segment(track.prompt_length if left else 0, pad, Kind.PAD)
        segments = [content, padding] if left else [padding, content]
        rows.append(
            TensorRow(
                row=track.prompt.index,
                place=place,
                segments=[segment for segment in segments if segment.length],
                padding=0 if frame.method == "slotspec" else pad,
                content=track.prompt_length,
                delta=None,
                kv_length=0,
                positions=(0, track.prompt_length - 1) if track.prompt_length else None,
                end=track.prompt_length,
            )
        )
    return TensorView(rows, longest, True, longest, frame.method == "slotspec", room)
