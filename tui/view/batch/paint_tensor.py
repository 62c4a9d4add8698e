"""The tensor drawn: a gutter of figures, the long past in signs, the last columns in full."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len

from tui.view.batch import cells
from tui.view.batch.cells import LINE, MARK, NARROW, Cell, Kind
from tui.view.batch.tensor import TensorRow, TensorView
from tui.view.lines import Line, crop
from tui.view.showable import fit
from tui.view.state.completed import UNKNOWN
from tui.view.state.cursor import Phase
from tui.view.state.frame import CellMode, Frame

ZOOMS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
"""Terminal cells to a column of the tensor."""

DEBRIS = 9
"""Room at the right for rejected draft tokens that are out of memory."""


@dataclass(frozen=True)
class Geometry:
    """How the width of the pane is shared out."""

    gutter: tuple[tuple[str, int], ...]
    past: int
    """Signs for the columns before `start`."""
    start: int
    """First column drawn in full."""
    columns: int
    zoom: int
    width: int

    @property
    def gutter_width(self) -> int:
        return sum(width for _, width in self.gutter)

    @property
    def cells_at(self) -> int:
        """Where the columns that are drawn in full begin."""
        return self.gutter_width + (self.past + 1 if self.past else 0)


def default_zoom(width: int, block: int = 0) -> int:
    """The zoom that suits a pane of this width: the whole block should be seen."""
    zoom = 8 if width >= 140 else 7 if width >= 96 else 6 if width >= 60 else 4
    room = width - sum(size for _, size in gutter_for(width))
    return max(4, min(zoom, (room - room // 6 - 1) // (block + 2)))


def gutter_for(width: int) -> tuple[tuple[str, int], ...]:
    """The figures that have room beside the cells."""
    if width >= 110:
        return (
            ("row", 6),
            ("pad", 5),
            ("c", 5),
            ("δ", 5),
            ("kv", 5),
            ("pos", 8),
        )
    if width >= 70:
        return (("row", 5), ("pad", 5), ("c", 4), ("δ", 4), ("kv", 4))
    if width >= 50:
        return (("row", 5), ("pad", 5), ("c", 4), ("δ", 4))
    return (("row", 5), ("δ", 4))


def geometry(view: TensorView, width: int, zoom: int, offset: int = 0) -> Geometry:
    """Share out `width`; `offset` columns are hidden at the right."""
    gutter = gutter_for(width)
    room = max(1, width - sum(size for _, size in gutter))
    end = max(1, view.end - offset)
    debris = DEBRIS if zoom >= 3 and width >= 96 and not offset else 0
    columns = max(1, (room - debris) // zoom)
    if end <= columns:
        return Geometry(gutter, 0, 0, end, zoom, width)
    past = min(max(6, room // 6), 36, room // 2)
    columns = max(1, (room - past - 1 - debris) // zoom)
    start = max(0, end - columns)
    return Geometry(gutter, past, start, min(columns, end), zoom, width)


def row_height(count: int, height: int) -> int:
    """Lines for each row: its cells, then the second line, then air."""
    if count * 3 <= height:
        return 3
    return 2 if count * 2 <= height else 1


def paint_ruler(view: TensorView, shape: Geometry) -> Line:
    """Names of the figures, and column numbers."""
    line: Line = []
    for name, width in shape.gutter:
        text = fit("  row", width) if name == "row" else name.rjust(width - 1) + " "
        line.append((text, "dim"))
    if shape.past:
        last = view.end - 1 if view.own_tails else shape.start - 1
        line.append((fit(f"0…{last}", shape.past, ellipsis=""), "dim"))
        line.append((" ", "dim"))
    if view.own_tails and shape.past:
        line.append(("each row by its own end", "dim"))
        return crop(line, shape.width)
    if shape.zoom >= 4:
        for column in range(shape.start, shape.start + shape.columns):
            line.append((fit(str(column), shape.zoom), "dim"))
    else:
        step = 10 if shape.zoom < 2 else 5
        text = ""
        for column in range(shape.start, shape.start + shape.columns):
            at = (column - shape.start) * shape.zoom
            if column % step == 0 and at >= len(text):
                text = text.ljust(at) + str(column)
        line.append((text, "dim"))
    return crop(line, shape.width)


def paint_row(
    frame: Frame, view: TensorView, row: TensorRow, shape: Geometry, height: int
) -> list[Line]:
    """All lines of one row of the batch."""
    selected = frame.selected == row.row
    first: Line = _gutter(frame, row, shape, selected)
    start = first_column(view, row, shape)
    if shape.past:
        until = view.end if view.own_tails else start
        kinds = cells.overview(row.segments, 0, until, shape.past)
        first.extend(_runs(kinds))
        first.append(("┊", "rule"))
    window = cells.window(row.segments, start, start + shape.columns)
    edge_at = row_edge(view, row)
    for number, cell in enumerate(window):
        edge = start + number == edge_at - 1
        _paint_cell(first, frame, row, cell, shape.zoom, frame.mode, edge)
    _debris(first, frame, row, shape, start, edge_at)
    lines = [crop(first, shape.width)]
    if height >= 2:
        lines.append(_second(frame, row, shape, window, start, edge_at))
    while len(lines) < height:
        lines.append([(" " * shape.width, "text")])
    return lines


def first_column(view: TensorView, row: TensorRow, shape: Geometry) -> int:
    """The first column of the row that is drawn in full."""
    if not shape.past or not view.own_tails:
        return shape.start
    return max(0, row.end - shape.columns - (view.end - shape.start - shape.columns))


def row_edge(view: TensorView, row: TensorRow) -> int:
    """The column at which the row is cut off; −1: it is not."""
    if not view.own_tails:
        return view.edge
    stale = bool(row.segments) and row.segments[-1].kind is Kind.STALE
    return row.edge if row.edge is not None and not stale else -1


def _runs(kinds: list[Kind]) -> Line:
    out: Line = []
    for kind in kinds:
        sign, style = LINE[kind], kind.value
        if out and out[-1][1] == style:
            out[-1] = (out[-1][0] + sign, style)
        else:
            out.append((sign, style))
    return out


def _gutter(frame: Frame, row: TensorRow, shape: Geometry, selected: bool) -> Line:
    line: Line = []
    for name, width in shape.gutter:
        if name == "row":
            mark = "▸" if selected else " "
            style = "broken" if row.broken else "strong" if selected else "text"
            end = "■" if row.finish_reason else " "
            line.append((fit(f"{mark} {row.row}{end}", width), style))
            continue
        text, style = _figure(name, row)
        line.append((text.rjust(width - 1) + " ", style))
    return line


def _figure(name: str, row: TensorRow) -> tuple[str, str]:
    if name == "pad":
        if row.padding is None:
            return UNKNOWN, "dim"
        return str(row.padding), "text" if row.padding else "dim"
    if name == "c":
        return str(row.content), "text"
    if name == "δ":
        if row.delta is None:
            return "" if row.padding is not None else UNKNOWN, "dim"
        return (f"{row.delta:+d}", "realign") if row.delta else ("0", "dim")
    if name == "kv":
        return (UNKNOWN, "dim") if row.kv_length is None else (str(row.kv_length), "text")
    if row.positions is None:
        return UNKNOWN, "dim"
    return f"{row.positions[0]}…{row.positions[1]}", "dim"


def _paint_cell(
    line: Line,
    frame: Frame,
    row: TensorRow,
    cell: Cell,
    zoom: int,
    mode: CellMode,
    edge: bool,
) -> None:
    kind = cell.kind
    style = f"cell-{kind.value}"
    if zoom == 1:
        text, _ = cell_text(frame, row, cell, mode)
        sign = NARROW[kind] if mode is CellMode.TOKEN else (text.strip()[-1:] or " ")
        line.append((sign, style if kind is not Kind.EMPTY else "text"))
        return
    gap = "│" if edge and zoom >= 3 else " "
    if kind is Kind.EMPTY:
        line.append((" " * (zoom - 1), "text"))
    elif kind is Kind.PAD and mode is not CellMode.MASK:
        line.append(("·".center(zoom - 1), style))
    else:
        text, dim = cell_text(frame, row, cell, mode)
        if zoom == 2 and mode is CellMode.TOKEN:
            text = NARROW[kind]
        line.append((fit(text, zoom - 1), style + ("-dim" if dim else "")))
    line.append((gap, "edge" if gap == "│" else "text"))


def cell_text(frame: Frame, row: TensorRow, cell: Cell, mode: CellMode) -> tuple[str, bool]:
    """What a cell says in this mode, and whether it says it quietly."""
    if mode is CellMode.POSITION:
        return ("–", True) if cell.position is None else (str(cell.position), False)
    if mode is CellMode.SLOT:
        return _slot(cell)
    if mode is CellMode.MASK:
        if not cell.attended:
            return " ○", True
        return (" ◐", True) if cell.beyond else (" ●", False)
    token = cell.token
    if token is None and cell.place >= 0:
        token = frame.timeline.token_at(row.row, cell.place, frame.cursor.round)
    piece = "" if token is None else frame.timeline.piece(token)
    mark = MARK[cell.kind]
    if mark:
        return mark + piece.removeprefix(" "), False
    return piece, False


def _slot(cell: Cell) -> tuple[str, bool]:
    if cell.kind is Kind.GHOST:
        return f"≈{cell.place}", False
    if cell.kind in (Kind.STALE, Kind.REJECTED):
        return "stale", False
    if cell.kind is Kind.PROPOSED:
        return "new", False
    if not cell.cached:
        return "no KV", True
    return (f"k{cell.place}", False) if cell.place >= 0 else ("new", False)


def _debris(
    line: Line, frame: Frame, row: TensorRow, shape: Geometry, start: int, edge: int
) -> None:
    """Rejected draft tokens, written beyond the edge of the rectangle."""
    if not row.debris or shape.zoom < 3 or not start <= edge <= start + shape.columns:
        return
    at = shape.cells_at + (edge - start) * shape.zoom
    room = shape.width - at
    if room < 4:
        return
    kept = crop(line, at)
    for token in row.debris:
        piece = frame.timeline.piece(token).removeprefix(" ")
        if room < 4:
            break
        text = fit(piece, min(room - 2, cell_len(piece)))
        kept.append(("✗", "rejected"))
        kept.append((text, "struck"))
        kept.append((" ", "text"))
        room -= 2 + cell_len(text)
    line[:] = kept


def _second(
    frame: Frame, row: TensorRow, shape: Geometry, window: list[Cell], start: int, edge_at: int
) -> Line:
    """Under the cells: the positions that were fed (or the tokens), and a word on the row."""
    gutter = fit("   " + _note(row), shape.gutter_width)
    line: Line = [(gutter, "dim")]
    if shape.past:
        line.append((" " * shape.past + "┊", "rule"))
    mode = CellMode.POSITION if frame.mode is not CellMode.POSITION else CellMode.TOKEN
    if shape.zoom >= 4:
        for number, cell in enumerate(window):
            text = ""
            if cell.kind is not Kind.EMPTY and not (
                cell.kind is Kind.PAD and cell.position is None
            ):
                text, _ = cell_text(frame, row, cell, mode)
            edge = start + number == edge_at - 1
            line.append((fit(text, shape.zoom - 1), "faint"))
            line.append(("│" if edge else " ", "edge" if edge else "text"))
    return crop(line, shape.width)


def _note(row: TensorRow) -> str:
    words = []
    if row.accepted is not None and row.drafted:
        words.append(f"{row.accepted}/{row.drafted} accepted")
    elif row.drafted:
        words.append(f"{row.drafted} drafted")
    if row.finish_reason:
        words.append(f"■ {row.finish_reason}")
    elif row.note:
        words.append(row.note)
    if row.by_text and row.drafted:
        words.append("text")
    return " · ".join(words)


def paint_legend(frame: Frame) -> Line:
    """The signs of a verified round, in few words."""
    if frame.cursor.round == 0 or frame.mode is not CellMode.TOKEN:
        return []
    line: Line = [("    ", "rule")]
    for name, word in (("accepted", "accepted"), ("bonus", "bonus"), ("rejected", "rejected")):
        line += [(MARK[Kind(name)], name), (f" {word}  ", "dim")]
    return line


def paint_phases(frame: Frame, width: int) -> Line:
    """The phases of a round, with the one that is shown; on a small screen that one alone."""
    if frame.cursor.round == 0:
        if frame.busy:
            return [(" prefilling the first batch … ", "dim")]
        hint = " before round 1 · space runs, n steps " if width >= 90 else " before round 1 "
        return [(hint, "dim")]
    if width < 70:
        return [(f" {frame.cursor.phase.word} ", "strong")]
    line: Line = [(" ", "dim")]
    for phase in Phase:
        here = phase is frame.cursor.phase
        if phase:
            line.append((" › ", "rule"))
        line.append((phase.word, "strong" if here else "dim"))
    line.append((" ", "dim"))
    return line
