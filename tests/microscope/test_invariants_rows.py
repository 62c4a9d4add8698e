"""The invariants pane names every row that broke one, and the round in which it did."""

from __future__ import annotations

import pytest

from engine.records.violation import Violation
from tui.view.lines import plain, width_of
from tui.view.panes.invariants import invariants_lines
from tui.view.state.cursor import LAST, Cursor
from tui.view.state.frame import Frame
from tui.view.state.timeline import Timeline


@pytest.mark.parametrize("width", [28, 36, 80])
@pytest.mark.parametrize("height", [3, 5, 12])
def test_every_row_that_broke_is_named_at_every_size(width: int, height: int) -> None:
    timeline = Timeline()
    for row in range(6):
        for name in ("I3", "I4") if row % 2 else ("I3",):
            broken = Violation(invariant=name, row=row, note="a slot is empty")
            timeline.breaks.append((10 + row, broken))
    frame = Frame(timeline=timeline, cursor=Cursor(14, LAST))
    lines = invariants_lines(frame, width, height)
    text = " ".join(plain(line).strip() for line in lines)
    assert all(width_of(line) <= width for line in lines)
    for row in range(1, 5):
        assert f"row {row} r{10 + row}" in text
    assert "I3 row 0, round 10" in text
    assert "I4 row 3 r13" in text
    assert "row 5" not in text, "it breaks after the round that is looked at"
