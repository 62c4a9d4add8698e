"""One lane of a comparison: its batch in few lines, its rows' texts, and what went wrong."""

from __future__ import annotations

from dataclasses import replace

from tui.view.batch.cells import Kind, Segment
from tui.view.batch.paint_tensor import Geometry, paint_row
from tui.view.batch.rowtext import row_text
from tui.view.batch.tensor import LEFT_ALIGNED, TensorRow, TensorView, row_at, tensor_view
from tui.view.lines import Line
from tui.view.showable import fit
from tui.view.state.compare import LaneFrame
from tui.view.state.cursor import LAST, Cursor
from tui.view.state.track import RowTrack

NARROW = 100
"""A lane narrower than this shows no columns that are free after the round …"""

DEBRIS = 16
"""… but for some room in which rejected draft tokens lie, from a width of 70 on."""

SHORT = 16
"""A gutter narrower than this has no room for words."""

TALL = 3
"""Lines of a row at most: its cells, the positions, its text."""


def lane_rows(look: LaneFrame, most: int = 64, width: int = 80) -> TensorView:
    """The lane's batch; of a pool also the rows at rest that the other lanes have in theirs.

    Args:
        most: rows for which there is room; those at rest take what the batch leaves.
        width: of the lane; a narrow one shows no columns that are free after the round.
    """
    record = look.frame.record
    if record is None and look.frame.timeline.failure is not None:
        return TensorView()
    view = tensor_view(look.frame)
    rows = view.rows
    if record is not None and record.kind in ("grouped", "fallback"):
        here = {row.row for row in rows}
        wanted = [row for row in look.shared if row not in here]
        wanted.sort(key=lambda row: row != look.frame.selected)
        found = [_resting(look, row) for row in wanted[: max(0, most - len(rows))]]
        resting = [row for row in found if row is not None]
        rows = sorted([*rows, *resting], key=lambda row: row.row)
        view = replace(view, own_tails=view.own_tails or bool(resting))
    rows = [_marked(look, row) for row in rows]
    if width < NARROW and record is not None and look.frame.settled:
        rows = [replace(row, end=row.edge or row.end) for row in rows]
        return replace(view, rows=rows, end=max((row.end for row in rows), default=1), block=0)
    return replace(view, rows=rows)


def _resting(look: LaneFrame, row: int) -> TensorRow | None:
    """A row that took no part in the round, as its last one left it."""
    frame = look.frame
    track = frame.timeline.tracks.get(row)
    if track is None or track.error:
        return None
    count = track.count_at(frame.cursor.round)
    if not count:
        return _waiting(track, frame.timeline.method in LEFT_ALIGNED)
    number = track.rounds[count - 1]
    record = frame.timeline.round_at(number)
    if record is None:
        return None
    entry = next((entry for entry in record.rows if entry.row == row), None)
    if entry is None:
        return None
    then = replace(frame, cursor=Cursor(number, LAST), slide=1.0)
    found = row_at(then, record, entry, broken=False)
    quiet = {Kind.ACCEPTED: Kind.COMMITTED, Kind.BONUS: Kind.COMMITTED}
    segments = [
        segment._replace(kind=quiet.get(segment.kind, segment.kind)) for segment in found.segments
    ]
    resting = replace(found, segments=segments, debris=(), accepted=None, delta=None)
    return replace(resting, parked=True, note="at rest")


def _waiting(track: RowTrack, left: bool) -> TensorRow:
    """A row that has not begun."""
    length = track.prompt_length
    return TensorRow(
        row=track.prompt.index,
        place=0,
        segments=[Segment(0, length, Kind.PROMPT, 0, (), 0, True, False)],
        padding=0,
        content=length,
        delta=None,
        kv_length=0,
        positions=None,
        parked=True,
        note="waits",
        end=length,
        edge=length,
    )


def _marked(look: LaneFrame, row: TensorRow) -> TensorRow:
    """The row with its first wrong token marked."""
    entry = look.match.divergence_at(row.row, look.number)
    track = look.frame.timeline.tracks.get(row.row)
    if entry is None or entry.divergence.got is None or track is None:
        return row
    index = track.prompt_length + entry.divergence.position
    return replace(row, segments=mark(row.segments, index))


def mark(segments: list[Segment], index: int) -> list[Segment]:
    """The segments with the cell of token `index` set apart."""
    out: list[Segment] = []
    for segment in segments:
        offset = index - segment.first
        if segment.first < 0 or not 0 <= offset < segment.length:
            out.append(segment)
            continue
        for begin, end, kind in (
            (0, offset, segment.kind),
            (offset, offset + 1, Kind.DIVERGED),
            (offset + 1, segment.length, segment.kind),
        ):
            if end > begin:
                out.append(_part(segment, begin, end)._replace(kind=kind))
    return out


def _part(segment: Segment, begin: int, end: int) -> Segment:
    position = segment.position
    return segment._replace(
        start=segment.start + begin,
        length=end - begin,
        first=segment.first + begin,
        tokens=segment.tokens[begin:end],
        position=None if position is None else position + begin,
    )


def gutter(width: int) -> tuple[tuple[str, int], ...]:
    """The figures beside a lane's cells: fewer than where the batch is alone."""
    if width >= 110:
        return (("row", 6), ("pad", 5), ("c", 5), ("δ", 5), ("kv", 5))
    if width >= 70:
        return (("row", 5), ("pad", 5), ("c", 4), ("δ", 4))
    return (("row", 5), ("δ", 5))


def lane_shape(view: TensorView, width: int, zoom: int | None, hidden: int = 0) -> Geometry:
    """How the width of a lane is shared out: the newest columns in full, the past in signs."""
    figures = gutter(width)
    debris = DEBRIS if width >= 70 and view.block == 0 else 0
    room = max(1, width - sum(size for _, size in figures) - debris)
    wanted = zoom or (8 if width >= 100 else 7 if width >= 50 else 6)
    if zoom is None:
        wanted = max(4, min(wanted, (room - room // 6 - 1) // (view.block + 2)))
    end = max(1, view.end - hidden)
    columns = max(1, room // wanted)
    if end <= columns:
        return Geometry(figures, 0, 0, end, wanted, width)
    past = min(max(6, room // 6), 30, room // 2)
    columns = max(1, (room - past - 1) // wanted)
    return Geometry(figures, past, max(0, end - columns), min(columns, end), wanted, width)


def lines_per_row(count: int, height: int) -> int:
    """Cells, text and positions where there is room; the cells alone where there is not."""
    return next((each for each in (TALL, 2) if count * each <= height), 1)


def row_lines(
    look: LaneFrame, view: TensorView, row: TensorRow, shape: Geometry, each: int
) -> list[Line]:
    """All lines of one row: its cells, then its text (and between them the positions)."""
    lines = paint_row(look.frame, view, row, shape, max(1, each - 1))
    if len(lines) > 1 and shape.gutter_width < SHORT and row.accepted is not None:
        lines[1][0] = (fit(f"   {row.accepted}/{row.drafted}", shape.gutter_width), "dim")
    if row.parked:
        lines = [_quiet(line) for line in lines]
    if each >= 2:
        lines.append(row_text(look, row.row, shape.width, "   "))
    return lines


def _quiet(line: Line) -> Line:
    """A line of cells that take no part: in fainter ink."""
    return [(text, f"{name}-dim" if name in DIMMED else name) for text, name in line]


DIMMED = {"cell-prompt", "cell-committed", "cell-pad", "cell-stale"}
