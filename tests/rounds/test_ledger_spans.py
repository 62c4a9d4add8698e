"""Spans say of each cell what the ledger says of it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.kv_cache import EMPTY
from engine.records.row import RowRound
from engine.rounds.ledger_spans import ledger_spans
from tui.view.batch.cells import kept, window

CELLS = st.lists(st.integers(EMPTY, 4), min_size=6, max_size=6)


@settings(max_examples=60)
@given(CELLS, CELLS, st.integers(0, 2), st.booleans())
def test_every_cell_keeps_its_position(
    ids: list[int], positions: list[int], padding: int, shifted: bool
) -> None:
    """Cells in which nothing was written have none, and take no neighbour's away."""
    own = 4
    if shifted:  # as when positions 0, 1, 2, … follow on cells that were never written
        positions = [*[EMPTY] * 2, *range(own)]
    spans = ledger_spans(
        np.array(ids),
        np.array(positions),
        tokens=np.arange(own),
        columns=padding + np.arange(own),
        padding=np.arange(6) < padding,
        attended=np.ones(6, bool),
    )
    assert sum(span.length for span in spans) == 6
    row = RowRound(row=0, before=own, committed=(), kept=spans)
    shown = window(kept(row, own), 0, 6)
    for at in range(padding, 6):
        due = None if positions[at] == EMPTY else positions[at]
        place = at - padding
        right = place < own and (ids[at], positions[at]) == (place, place)
        if place != own - 1:  # the newest token has no K/V of its own to show yet
            assert shown[at].position == (place if right else due)
    assert [cell.place for cell in shown[padding : padding + own]] == list(range(own))
