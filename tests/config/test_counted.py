"""One is not many: what is counted has the noun that goes with its number."""

from __future__ import annotations

import re

import pytest

from engine.records.schema import RunHeader, Summary
from engine.records.violation import Violation
from engine.runs.run import Run
from tests.cases import PROMPTS, settings_of
from tests.tiny import tiny_pair
from tui.cli.tables import print_run
from tui.view.lines import plain
from tui.view.panes.inspect import inspect_lines
from tui.view.panes.invariants import invariants_lines
from tui.view.panes.method import method_lines
from tui.view.state.closeup import close_up
from tui.view.state.cursor import LAST, Cursor
from tui.view.state.frame import Frame
from tui.view.state.timeline import Timeline

NOUNS = "rows|rounds|tokens|slots|prompts|columns|lengths|cells"
MANY = re.compile(rf"(?<![\d.…/])1 (more )?({NOUNS})\b")


@pytest.mark.parametrize("method", ["autoregressive", "eqspec", "exspec", "slotspec"])
def test_a_run_of_one_row_one_round_one_token(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tiny_pair(), settings_of(method, max_new_tokens=1, inspect=True), PROMPTS[:1])
    timeline = Timeline()
    *_, summary = records = list(run.records())
    for record in records:
        timeline.add(record)  # type: ignore[arg-type]
    header = records[0]
    assert isinstance(header, RunHeader)
    assert isinstance(summary, Summary)
    print_run(header, summary)
    frame = Frame(timeline=timeline, cursor=Cursor(1, LAST), selected=0)
    look = close_up(frame, None)
    assert look is not None
    pages = [*inspect_lines(look, 118), *method_lines(frame, 50, 12)]
    texts = [capsys.readouterr().out, *map(plain, pages)]
    assert "1 token in 1 round" in texts[0]
    for text in texts:
        assert not MANY.search(text), text


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_rows_in_which_the_same_broke(rows: int) -> None:
    timeline = Timeline()
    for row in range(rows):
        violation = Violation(invariant="I4", row=row, note="query 0 sees 1 cell")
        timeline.breaks.append((1, violation))
    lines = map(plain, invariants_lines(Frame(timeline=timeline, cursor=Cursor(1)), 60, 12))
    text = "\n".join(lines)
    assert not MANY.search(text)
    assert ("more row" in text) == (rows > 1)
