"""Exports: trace events that open in Perfetto, and a table of rounds."""

from __future__ import annotations

import csv
import io
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engine.records.export import COLUMNS, ORDER, chrome_events, plain, write_rounds
from engine.records.row import RowRound
from engine.records.schema import ChangeRecord, Failure, Phases, Record, RoundRecord, RunHeader
from engine.records.trace import TraceWriter
from tests import synthetic

HEADER = RunHeader(method="eqspec", settings={"batch_size": 1})
SECONDS = Phases(draft=0.001, verify=0.002, realign=0.0005)


def events_of(*records: Record) -> list[dict[str, Any]]:
    return list(chrome_events(records))


def slices(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def test_a_round_is_a_slice_with_its_phases_inside_in_microseconds() -> None:
    record = RoundRecord(round=1, seconds=SECONDS, elapsed=0.0035)
    whole, *phases = slices(events_of(HEADER, record))
    assert (whole["name"], whole["ts"], whole["dur"]) == ("round 1", 0.0, 3500.0)
    assert [(one["name"], one["ts"], one["dur"]) for one in phases] == [
        ("draft", 0.0, 1000.0),
        ("verify", 1000.0, 2000.0),
        ("realign", 3000.0, 500.0),
    ]


def test_rounds_follow_one_another_and_never_overlap() -> None:
    events = slices(events_of(*synthetic.records("eqspec")))
    rounds = [event for event in events if event["name"].startswith("round")]
    for before, after in itertools.pairwise(rounds):
        assert after["ts"] >= before["ts"] + before["dur"] - 0.01
    inside = [event for event in events if event["name"] in ORDER]
    assert sum(one["dur"] for one in inside) == pytest.approx(sum(one["dur"] for one in rounds))


def test_a_trace_that_tells_no_elapsed_time_is_laid_end_to_end() -> None:
    rounds = [RoundRecord(round=n, seconds=SECONDS) for n in (1, 2)]
    whole = [one for one in slices(events_of(HEADER, *rounds)) if one["name"] == "round 2"]
    assert whole[0]["ts"] == 3500.0


def test_counters_tell_acceptance_and_realignment() -> None:
    row = RowRound(row=0, draft_token_ids=(1, 2, 3), accepted=2, committed=(1, 2, 9))
    record = RoundRecord(round=1, rows=(row,), realign_bytes=4096)
    counters = {
        event["name"]: event["args"] for event in events_of(HEADER, record) if event["ph"] == "C"
    }
    assert counters["accepted"] == {"accepted": 2, "rejected": 1}
    assert counters["realign bytes"] == {"bytes": 4096}


def test_an_invariant_is_marked_where_it_breaks_and_not_again() -> None:
    events = events_of(*synthetic.records("dsd"))
    marks = [event for event in events if event["ph"] == "i"]
    assert [mark["name"] for mark in marks] == [
        "I1 batch: padding piles up: the smallest padding is not 0"
    ]
    assert marks[0]["s"] == "t"


def test_each_run_is_a_process_of_its_own() -> None:
    lanes = [replace(HEADER, lane=lane, lanes=2) for lane in (0, 1)]
    again = replace(HEADER, lane=1, lanes=2, method="bsp")
    change = ChangeRecord(lane=0, changed=("draft_tokens",), settings={"draft_tokens": 3})
    events = events_of(*lanes, again, change, Failure(message="broke"))
    names = {
        event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"
    }
    assert names == {1: "lane 0: eqspec", 2: "lane 1: eqspec", 3: "lane 1: bsp"}
    assert [event["name"] for event in events if event["ph"] == "i"] == [
        "change: draft_tokens = 3",
        "failure: broke",
    ]


def test_the_table_has_a_line_for_each_row_in_each_round() -> None:
    made = list(synthetic.records("eqspec"))
    rounds = [record for record in made if isinstance(record, RoundRecord)]
    out = io.StringIO()
    assert write_rounds(made, out) == sum(len(record.rows) for record in rounds)
    lines = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert tuple(lines[0]) == COLUMNS
    row = rounds[0].rows[0]
    assert lines[0]["method"] == "eqspec"
    assert int(lines[0]["accepted"]) == row.accepted
    assert lines[0]["committed_ids"] == " ".join(map(str, row.committed))
    assert float(lines[-1]["elapsed"]) == pytest.approx(rounds[-1].elapsed)


def test_text_stays_in_one_line_and_does_nothing_to_a_terminal() -> None:
    assert plain("a\nb\x1b[31m\\ é 🙂\u202e") == "a\\nb\\x1b[31m\\\\ é 🙂\\u202e"


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; from tui.cli.main import _status; code = _status(sys.argv[1:])\n"
        "assert not {'torch', 'numpy', 'textual'} & set(sys.modules)\n"
        "sys.exit(code)"
    )
    line = [sys.executable, "-c", code, "export", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=100)


def test_both_are_written_without_torch_and_a_cut_trace_as_far_as_it_goes(
    tmp_path: Path, home: Path
) -> None:
    trace = tmp_path / "t.jsonl"
    with TraceWriter(trace) as writer:
        for record in synthetic.records("exspec"):
            writer.write(record)
    trace.write_bytes(trace.read_bytes()[:-1000])
    done = command(str(trace), "--chrome", str(tmp_path / "c.json"), "--csv", "-")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lane,method,round,")
    assert done.stderr.count("\n") == 2
    assert f"written: {tmp_path / 'c.json'}\n" in done.stderr
    assert "written: -" not in done.stderr
    assert "ends in the middle of line" in done.stderr
    written = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert len(slices(written["traceEvents"])) > 10


def test_nothing_to_write_is_wrong_usage(tmp_path: Path, home: Path) -> None:
    done = command(str(tmp_path / "t.jsonl"))
    assert done.returncode == 2
    assert "--chrome FILE, --csv FILE or --svg FILE" in done.stderr


def test_a_picture_of_a_moment(tmp_path: Path, home: Path) -> None:
    from engine.config.errors import UserError
    from tui.app.picture import picture

    with TraceWriter(tmp_path / "t.jsonl") as writer:
        for record in synthetic.records("slotspec", max_new_tokens=20):
            writer.write(record)
    found = picture((tmp_path / "t.jsonl",), 3, size=(100, 30))
    assert found.startswith("<svg")
    assert "SLOTSPEC" in found
    with pytest.raises(UserError, match="the trace has rounds 1 to"):
        picture((tmp_path / "t.jsonl",), 999)


@pytest.mark.parametrize("size", ["120", "ax9", "5x5", "9999x9"])
def test_a_size_that_is_none(tmp_path: Path, home: Path, size: str) -> None:
    done = command(str(tmp_path / "t.jsonl"), "--svg", str(tmp_path / "a.svg"), "--size", size)
    assert done.returncode == 2
    assert "--size" in done.stderr
