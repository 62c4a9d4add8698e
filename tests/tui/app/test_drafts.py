"""Every method with K chosen by itself, and with draft tokens from the row's own text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.config.methods import METHODS
from engine.runs.run import Run
from tests.cases import PROMPTS, settings_of
from tests.tiny import tiny_pair
from tui.view.batch.paint_tensor import default_zoom, geometry, paint_row
from tui.view.batch.tensor import tensor_view
from tui.view.lines import plain, width_of
from tui.view.panes.cost import cost_lines
from tui.view.panes.inspect import inspect_lines
from tui.view.panes.method import method_lines
from tui.view.panes.sizes import reason_of
from tui.view.panes.status import status_lines
from tui.view.state.closeup import close_up
from tui.view.state.cursor import Cursor, Phase
from tui.view.state.frame import CellMode, Frame
from tui.view.state.timeline import Timeline

PAIR = tiny_pair()


def timeline_of(method: str, draft: str) -> Timeline:
    pair = replace(PAIR, draft=None) if draft == "lookup" else PAIR
    k = "auto" if draft == "auto" else 3
    job = Run(pair, settings_of(method, draft_tokens=k, inspect=True, max_new_tokens=20), PROMPTS)
    timeline = Timeline()
    for record in job.records():
        timeline.add(record)  # type: ignore[arg-type]
    return timeline


@pytest.mark.parametrize("draft", ["auto", "lookup"])
@pytest.mark.parametrize("method", METHODS)
def test_every_round_can_be_shown(method: str, draft: str) -> None:
    if draft == "lookup" and method in ("bsp", "dsd"):
        pytest.skip("the published baselines need a draft model")
    timeline = timeline_of(method, draft)
    width = 118
    silent = 0
    for number, record in enumerate(timeline.rounds, start=1):
        silent += any(not row.draft_token_ids for row in record.rows)
        for phase in Phase:
            frame = Frame(timeline=timeline, cursor=Cursor(number, phase), selected=0)
            (line,) = status_lines(frame, "running", None, True, "", width, 1)
            shown = plain(line)
            word = (
                f"K {record.draft_tokens} auto" if draft == "auto" else f"K {record.draft_tokens} "
            )
            assert word in shown
            assert width_of(line) <= width
            for mode in CellMode:
                view = tensor_view(replace(frame, mode=mode))
                shape = geometry(view, width, default_zoom(width, view.block))
                for row in view.rows:
                    for painted in paint_row(replace(frame, mode=mode), view, row, shape, 3):
                        assert width_of(painted) <= width
            assert method_lines(frame, 40, 10)
            costs = "\n".join(plain(line) for line in cost_lines(frame, 40, 14))
            assert reason_of(frame)[:20] in costs
            look = close_up(frame, None)
            assert look is None or inspect_lines(look, width)
    if method not in ("dsd", "bsp"):
        assert silent, "rows that draft nothing are among them"


def test_a_row_that_drafts_nothing_says_so() -> None:
    timeline = timeline_of("slotspec", "lookup")
    number, row = next(
        (number, row)
        for number, record in enumerate(timeline.rounds, start=1)
        for row in record.rows
        if not row.draft_token_ids and any(other.draft_token_ids for other in record.rows)
    )
    frame = Frame(timeline=timeline, cursor=Cursor(number), selected=row.row)
    view = tensor_view(frame)
    entry = next(entry for entry in view.rows if entry.row == row.row)
    shape = geometry(view, 118, 7)
    first, second, _ = (plain(line) for line in paint_row(frame, view, entry, shape, 3))
    assert "★" in first
    assert "✗" not in first
    assert "accepted" not in second
