"""Which token of a row lies under the mouse."""

from __future__ import annotations

from tui.view.batch.cells import cell_at
from tui.view.batch.paint_tensor import Geometry, first_column
from tui.view.batch.tensor import TensorRow, TensorView


def token_under(view: TensorView, row: TensorRow, shape: Geometry, x: int) -> int | None:
    """Index of the token at terminal cell `x` of the row's line; None: none of the row's own."""
    x -= shape.gutter_width
    if x < 0:
        return None
    if x < shape.past:
        until = view.end if view.own_tails else shape.start
        column = int((x + 0.5) / shape.past * until)
    else:
        offset = x - (shape.past + 1 if shape.past else 0)
        column = first_column(view, row, shape) + max(0, offset) // shape.zoom
    for segment in row.segments:
        if segment.start <= column < segment.end:
            place = cell_at(segment, column).place
            return place if place >= 0 else None
    return None
