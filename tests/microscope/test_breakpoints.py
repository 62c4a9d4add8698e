"""Breakpoints: how they are written, and where they apply."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from engine.config.errors import UserError
from engine.microscope.breakpoints import parse_breakpoint
from engine.microscope.watch import Watch
from engine.records.history import History
from engine.records.row import RowRound
from engine.records.schema import (
    OracleRecord,
    OracleRow,
    Phases,
    Prompt,
    Record,
    RoundRecord,
    RunHeader,
)
from engine.records.violation import Violation
from engine.runs.worker import EngineWorker, Progress, State
from tests.places import ROOT
from tests.synthetic import records
from tui.view.sentences import hit_words

HEADER = RunHeader(
    method="eqspec", prompts=(Prompt(index=0, ids=(1, 2)), Prompt(index=3, ids=(1,)))
)


def round_of(number: int = 1, **options: object) -> RoundRecord:
    """A round in which row 0 accepts one of three, and row 3 all of its two and ends."""
    rows = (
        RowRound(
            row=0,
            draft_token_ids=(7, 8, 9),
            accepted=1,
            committed=(7, 5),
            before=2,
            text="see the fo",
        ),
        RowRound(
            row=3,
            draft_token_ids=(4, 6),
            accepted=2,
            committed=(4, 6, 0),
            before=1,
            text="x",
            finish_reason="eos",
        ),
    )
    return RoundRecord(**{"round": number, "rows": rows, **options})  # type: ignore[arg-type]


def hits(text: str, *stream: Record) -> list[tuple[int, int | None]]:
    """Where a breakpoint applies: rounds and rows."""
    watch = Watch([parse_breakpoint(text)])
    for record in (HEADER, *stream):
        before = len(watch.hits)
        assert watch(record) == (len(watch.hits) > before)
    return [(hit.round, hit.row) for hit in watch.hits]


@pytest.mark.parametrize(
    "text",
    [
        "diverge",
        "invariant",
        "I3",
        "finish row=2",
        "fallback",
        "accept=0",
        "accept=K row=3",
        "accept>=2",
        "realign>5%",
        "round=42",
        "token=123",
        'text="foo"',
        'text="a \\"b\\"\\n=c" row=0',
    ],
)
def test_it_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_breakpoint(text)) == text
    assert parse_breakpoint(str(parse_breakpoint(text))) == parse_breakpoint(text)


def test_writing_is_forgiving_where_the_meaning_is_clear() -> None:
    assert parse_breakpoint(" row = 3  accept = K ") == parse_breakpoint("accept=K row=3")
    assert parse_breakpoint("i2") == parse_breakpoint("I2")
    assert parse_breakpoint("text=foo") == parse_breakpoint('text="foo"')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "one condition"),
        ("row=3", "one condition"),
        ("accept=0 finish", "one condition"),
        ("explode", "no condition 'explode'"),
        ("accept", "needs a value"),
        ("accept=many", "no number"),
        ("accept=5%", "whole number"),
        ("realign>5", "a share"),
        ("round>3", "= only"),
        ("round=3 row=1", "not of a row"),
        ("finish=3", "takes no value"),
        ("finish row=x", "row=0"),
        ('text=""', "empty"),
        ('text="a\\q"', "JSON"),
        ("accept=0 !!", "not understood"),
    ],
)
def test_what_is_no_breakpoint_is_refused_with_what_is_allowed(text: str, reason: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_breakpoint(text)
    message = str(caught.value)
    assert reason in message
    assert "accept=K" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("accept=0", []),
        ("accept=1", [0]),
        ("accept=K", [3]),
        ("accept<2", [0]),
        ("accept>=1", [0, 3]),
        ("accept>=1 row=3", [3]),
        ("accept=K row=0", []),
        ("finish", [3]),
        ("finish row=0", []),
        ("token=5", [0]),
        ("token=8", []),
        ("round=1", [None]),
        ("round=2", []),
        ("fallback", []),
    ],
)
def test_what_a_round_alone_decides(text: str, rows: list[int | None]) -> None:
    assert hits(text, round_of()) == [(1, row) for row in rows]


def test_a_row_without_draft_tokens_has_neither_accepted_none_nor_all() -> None:
    row = RowRound(row=0, committed=(5,), before=2)
    for text in ("accept=0", "accept=K"):
        assert hits(text, RoundRecord(round=1, rows=(row,))) == []


def test_realignment_by_its_share_of_the_round() -> None:
    record = round_of(seconds=Phases(verify=0.09, realign=0.01))
    assert hits("realign>5%", record) == [(1, None)]
    assert hits("realign>10.5%", record) == []
    assert hits("realign>0%", round_of()) == []


def test_a_fallback_says_which_rows_were_padded() -> None:
    assert hits("fallback", round_of(kind="fallback")) == [(1, None)]
    assert hits("fallback row=3", round_of(kind="fallback")) == [(1, 3)]
    assert hits("fallback row=7", round_of(kind="fallback")) == []


def test_an_invariant_holds_the_run_when_it_breaks_and_not_in_each_round_after() -> None:
    broken = (Violation(invariant="I3", row=0, note="a hole", since=1),)
    worse = (*broken, Violation(invariant="I2", row=3, note="a repeat", since=2))
    stream = [round_of(1, violations=broken), round_of(2, violations=worse)]
    assert hits("invariant", *stream) == [(1, 0), (2, 3)]
    assert hits("I2", *stream) == [(2, 3)]
    assert hits("I3 row=3", *stream) == []


def test_a_text_is_found_across_rounds_and_once() -> None:
    second = RoundRecord(round=2, rows=(RowRound(row=0, before=4, text="o bar"),))
    third = RoundRecord(round=3, rows=(RowRound(row=0, before=4, text="!"),))
    assert hits('text="foo"', round_of(), second, third) == [(2, 0)]
    assert hits('text="fo"', round_of(), second, third) == [(1, 0)]
    assert hits('text="foo" row=3', round_of(), second) == []


def oracle(row: int, *output: int, end: str | None = None) -> OracleRecord:
    return OracleRecord(rows=(OracleRow(row=row, output_ids=output, finish_reason=end),))


@pytest.mark.parametrize(
    ("said", "rows"),
    [
        (oracle(0, 7, 5), []),
        (oracle(0, 7, 6), [0]),
        (oracle(0, 7), []),
        (oracle(0, 7, end="eos"), [0]),
        (oracle(3, 4, 6, 0, end="eos"), []),
        (oracle(3, 4, 6, 0, 8), [3]),
    ],
)
def test_a_row_diverges_whichever_of_the_two_comes_first(
    said: OracleRecord, rows: list[int]
) -> None:
    expected = [(1, row) for row in rows]
    assert hits("diverge", round_of(), said) == expected
    assert hits("diverge", said, round_of()) == expected


def test_a_row_that_went_back_is_compared_anew() -> None:
    again = RoundRecord(round=2, rows=(RowRound(row=0, before=3, committed=(9,)),))
    assert hits("diverge", oracle(0, 7, 5), round_of(), again) == [(2, 0)]


def test_the_message_says_which_where_and_why() -> None:
    watch = Watch([parse_breakpoint("accept=K")])
    watch(HEADER)
    watch(round_of(7))
    assert hit_words(watch.hits[0]) == "accept=K in round 7: row 3: 2 of 2 accepted"


def test_the_run_is_held_where_a_breakpoint_applies() -> None:
    def source(progress: Progress) -> Iterator[Record]:
        yield from records(max_new_tokens=40)

    worker = EngineWorker(source, History(), watch=Watch([parse_breakpoint("round=5")]))
    worker.start()
    wait_for(worker, State.PAUSED)
    assert sum(isinstance(one, RoundRecord) for one in worker.history.since(0)) == 5
    worker.run()
    wait_for(worker, State.FINISHED)


def wait_for(worker: EngineWorker, state: State) -> None:
    end = time.monotonic() + 5
    while worker.state is not state:
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def test_the_conditions_of_the_documentation_are_conditions() -> None:
    text = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8")
    section = text[text.index("## `--break`") : text.index("## `replay`")]
    shown = re.findall(r"--break '?([^'\n]+?)'?(?: --|\n)", section)
    for line in section.splitlines():
        if line.startswith("| `"):
            shown += re.findall(r"`([^`]+)`", line.split("|")[1])
    assert len(shown) >= 14
    for condition in shown:
        parse_breakpoint(condition)
