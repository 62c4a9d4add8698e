"""Traces: written at once, read back equal, and never trusted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.config.errors import UserError
from engine.records.fold import totals_of
from engine.records.row import RowRound, Span
from engine.records.schema import Failure, Phases, Prompt, Record, RoundRecord, RunHeader, Summary
from engine.records.trace import KINDS, DamagedTrace, TraceWriter, read_trace, trace_header
from engine.records.violation import Violation
from tests import synthetic

HEADER = RunHeader(
    method="eqspec",
    settings={"batch_size": 2, "dtype": "float64"},
    prompts=(Prompt(index=0, ids=(5, 6), text="«\x1b[31m» 🙂", category="qa"),),
    pieces={5: " a", 6: "⟨0xF0⟩"},
)
ROUND = RoundRecord(
    round=1,
    rows=(
        RowRound(
            row=0,
            draft_token_ids=(7, 8),
            accepted=1,
            bonus=9,
            committed=(7, 9),
            kept=(Span(kind="pad", length=2), Span(kind="content", length=4)),
        ),
    ),
    seconds=Phases(draft=0.25, verify=0.5),
    violations=(Violation(invariant="I2", row=0, note="positions repeat", since=1),),
    pieces={7: "b"},
)
RECORDS: list[Record] = [
    HEADER,
    ROUND,
    Summary(totals=totals_of([ROUND]), interrupted=True),
    Failure(message="broke", round=2),
]


@pytest.fixture(params=["trace.jsonl", "trace.jsonl.zst"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def write(path: Path, records: list[Record]) -> None:
    with TraceWriter(path) as writer:
        for record in records:
            writer.write(record)


def test_what_was_written_is_read_back_equal(path: Path) -> None:
    write(path, RECORDS)
    assert list(read_trace(path)) == RECORDS


def test_each_record_can_be_read_while_the_run_goes_on(path: Path) -> None:
    with TraceWriter(path) as writer:
        for count, record in enumerate(RECORDS, start=1):
            writer.write(record)
            assert list(read_trace(path)) == RECORDS[:count]


def test_a_run_that_goes_on_is_appended(path: Path) -> None:
    write(path, RECORDS[:2])
    with TraceWriter(path, append=True) as writer:
        writer.write(RECORDS[2])
    assert list(read_trace(path)) == RECORDS[:3]


def test_a_plain_trace_is_one_json_object_a_line(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", RECORDS)
    lines = (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(RECORDS)
    assert lines[0].startswith('{"type":"header","schema":"batchspec/trace/3",')


def test_a_last_line_that_was_cut_off_ends_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, RECORDS)
    path.write_bytes(path.read_bytes()[:-20])
    assert list(read_trace(path)) == RECORDS[:-1]


def test_a_compressed_trace_that_was_cut_off_keeps_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.zst"
    write(path, RECORDS)
    path.write_bytes(path.read_bytes()[:-12])
    assert list(read_trace(path))[:2] == RECORDS[:2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the trace is empty"),
        (b"hello\n", "line 1: not a trace"),
        (b'{"type":"round","round":1}\n', "does not begin with a run header"),
        (b'{"type":"header","schema":"batchspec/trace/9","method":"x"}\n', "batchspec/trace/9"),
        (b'{"type":"header","method":"x"}\n{"type":"round"}\n', "line 2: not a trace"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        list(read_trace(path))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_wrong_compression_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        list(read_trace(tmp_path / "none.jsonl"))
    (tmp_path / "t.zst").write_bytes(b"plain text, not zstd\n")
    with pytest.raises(UserError, match="not a trace"):
        list(read_trace(tmp_path / "t.zst"))


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        TraceWriter(tmp_path / "no" / "such" / "t.jsonl")


def test_every_kind_of_record_is_known() -> None:
    assert {"header", "round", "summary", "failure", "oracle", "tick"} <= set(KINDS)


def test_a_newer_format_is_refused_though_its_fields_have_changed(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"type":"header","schema":"batchspec/trace/9","method":["x"]}\n')
    with pytest.raises(UserError, match=r"batchspec/trace/9.* a newer version of this program can"):
        trace_header(path)


def test_what_a_later_minor_version_added_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, [HEADER])
    with path.open("ab") as file:
        file.write(b'{"type":"weather","sky":"blue"}\n{"type":"round","round":1,"mood":3}\n')
    assert list(read_trace(path)) == [HEADER, RoundRecord(round=1)]


def damaged(path: Path) -> None:
    """Lines 1 and 2 are whole, line 3 is not."""
    lines = [
        *(msgspec.json.encode(record) for record in RECORDS[:2]),
        b"\x00\xff{",
        b'{"type":"x"}',
    ]
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def test_a_damaged_trace_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    damaged(tmp_path / "t.jsonl")
    with pytest.raises(DamagedTrace, match="line 3: not a trace"):
        list(read_trace(tmp_path / "t.jsonl"))


def test_a_damaged_trace_can_be_opened_up_to_the_damage(tmp_path: Path) -> None:
    damaged(tmp_path / "t.jsonl")
    notices: list[str] = []
    assert list(read_trace(tmp_path / "t.jsonl", notices)) == RECORDS[:2]
    assert len(notices) == 1
    assert "line 3 cannot be read" in notices[0]


def test_a_compressed_trace_can_be_opened_up_to_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.zst"
    write(path, RECORDS)
    content = bytearray(path.read_bytes())
    content[-30:-20] = bytes(10)
    path.write_bytes(content)
    notices: list[str] = []
    found = list(read_trace(path, notices))
    assert found == RECORDS[: len(found)]
    assert 1 <= len(found) < len(RECORDS)
    assert notices


def test_where_the_last_line_was_cut_off_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, RECORDS)
    path.write_bytes(path.read_bytes()[:-20])
    notices: list[str] = []
    assert list(read_trace(path, notices)) == RECORDS[:-1]
    assert notices == ["the trace ends in the middle of line 4"]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.zst"])
def test_wherever_a_trace_is_cut_it_says_so(tmp_path: Path, name: str) -> None:
    """In a line, between two, and in the frame of a compressed one."""
    made = list(synthetic.records("eqspec", max_new_tokens=4, prompts=synthetic.PROMPTS[:2]))
    path = tmp_path / name
    write(path, made)
    content = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(content) if byte == 10 and path.suffix != ".zst"]
    refused: list[str] = []
    only_summary = ends[-2:-1]  # all rows have ended by then: nothing is missing of them
    for at in [*range(1, len(content), max(1, len(content) // 60)), *ends[:-2]]:
        path.write_bytes(content[:at])
        notices: list[str] = []
        try:
            found = list(read_trace(path, notices))
        except UserError as error:
            refused.append(str(error))
            continue
        assert found == made[: len(found)]
        assert len(notices) == 1 or at in only_summary
    assert refused
    assert all("cut off in its first line" in words for words in refused)
    path.write_bytes(content)
    notices = []
    assert list(read_trace(path, notices)) == made
    assert notices == []
