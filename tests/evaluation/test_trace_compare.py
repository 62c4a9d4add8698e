"""Recordings laid side by side, level by round."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from engine.evaluation.trace_compare import side_by_side
from engine.records.schema import OracleRecord, Record, RoundRecord, RunHeader, Summary, TickRecord
from engine.records.trace import TraceWriter
from tests import synthetic


def record(path: Path, method: str = "eqspec", **options: object) -> list[Record]:
    made = list(synthetic.records(method, **options))  # type: ignore[arg-type]
    with TraceWriter(path) as writer:
        for one in made:
            writer.write(one)
    return made


def test_traces_are_level_by_round(tmp_path: Path) -> None:
    record(tmp_path / "a.jsonl", "eqspec")
    record(tmp_path / "b.jsonl", "slotspec")
    seen = {0: 0, 1: 0}
    notices: list[str] = []
    stream = list(side_by_side([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], notices))
    headers = [one for one in stream if isinstance(one, RunHeader)]
    assert [(one.lane, one.lanes, one.method) for one in headers] == [
        (0, 2, "eqspec"),
        (1, 2, "slotspec"),
    ]
    for one in stream:
        if isinstance(one, RoundRecord):
            seen[one.lane] += 1
        elif isinstance(one, TickRecord) and one.tick:
            assert max(seen.values()) == one.tick
            assert one.rounds == seen
    assert sum(isinstance(one, Summary) for one in stream) == 2
    assert notices == []


def test_the_first_trace_is_the_measure_of_the_rows_that_both_have(tmp_path: Path) -> None:
    made = record(tmp_path / "a.jsonl", prompts=synthetic.PROMPTS[:3])
    other = (synthetic.PROMPTS[0], "something else", synthetic.PROMPTS[2])
    record(tmp_path / "b.jsonl", prompts=other)
    stream = side_by_side([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], [])
    outputs: dict[int, list[int]] = {}
    for one in stream:
        if isinstance(one, OracleRecord):
            for row in one.rows:
                assert row.first == len(outputs.setdefault(row.row, []))
                outputs[row.row] += row.output_ids
    summary = made[-1]
    assert isinstance(summary, Summary)
    assert outputs == {0: list(summary.rows[0].output_ids)}


def test_a_recorded_comparison_comes_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    lanes = [list(synthetic.records(lane=lane, max_new_tokens=9)) for lane in range(2)]
    written: list[Record] = [replace(lane[0], lanes=2) for lane in lanes]  # type: ignore[type-var]
    written += [lane[1] for lane in lanes] + [TickRecord(tick=1, rounds={0: 1, 1: 1})]
    with TraceWriter(path) as writer:
        for one in written:
            writer.write(one)
    assert list(side_by_side([path], [])) == written
