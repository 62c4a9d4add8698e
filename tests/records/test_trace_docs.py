"""docs/trace.md is the format: its lines can be read, and every field is in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from engine.evaluation.check.outputs import read_foreign
from engine.records import row, schema, violation
from engine.records.schema import SCHEMA, Record, RoundRecord
from engine.records.trace import KINDS, read_trace
from tests.places import ROOT
from tests.tui_app import screen_text, until
from tui.app.replay_app import RecordedSource, ReplayApp, recorded_control
from tui.screens.main import MainScreen
from tui.view.state.timeline import Timeline

TEXT = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```json\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
LINES = [line for example in EXAMPLES for line in example.splitlines()]
STRUCTS = [
    kind
    for kind in {
        id(kind): kind for part in (row, schema, violation) for kind in vars(part).values()
    }.values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct
]

FIELDS = {name for struct in STRUCTS for name in struct.__struct_fields__}
FREE = ("settings", "versions", "pieces", "rounds", "back", "numbers", "lower", "paces")
"""Fields whose own names are free."""


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_each_example_is_a_record_and_has_no_other_fields(line: str) -> None:
    msgspec.json.decode(line, type=Record)
    assert names(msgspec.json.decode(line)) - FIELDS == {"type"}


def names(value: object) -> set[str]:
    """The names of all fields in a line."""
    if isinstance(value, list):
        return set().union(*map(names, value))
    if not isinstance(value, dict):
        return set()
    inner = (names(one) for name, one in value.items() if name not in FREE)
    return set(value).union(*inner)


def test_there_is_an_example_of_every_kind() -> None:
    kinds = {msgspec.json.decode(line)["type"] for line in LINES}
    assert kinds == set(KINDS) == {kind.__struct_config__.tag for kind in get_args(Record)}


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_field_is_in_the_text(struct: type[msgspec.Struct]) -> None:
    named = set(re.findall(r"`(\w+)`", TEXT)) | set(re.findall(r'"(\w+)":', TEXT))
    assert [name for name in struct.__struct_fields__ if name not in named] == []


def test_the_version_is_the_programs() -> None:
    assert TEXT.startswith(f"# The trace format, `{SCHEMA}`")


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    found = re.search(r"<!-- trace: minimal -->\n```json\n(.*?)^```$", TEXT, re.M | re.S)
    assert found is not None
    path = tmp_path / "minimal.jsonl"
    path.write_text(found[1], encoding="utf-8")
    return path


def test_the_minimal_trace_can_be_checked(minimal: Path) -> None:
    assert len([one for one in read_trace(minimal) if isinstance(one, RoundRecord)]) == 2
    rows = read_foreign(minimal).rows
    assert [row.output_ids for row in rows] == [(4, 8, 16, 42, 0), (23, 1, 11)]
    assert [row.finish_reason for row in rows] == ["eos", "length"]


@pytest.mark.parametrize("size", [(120, 35), (80, 24)])
async def test_the_minimal_trace_can_be_watched(minimal: Path, size: tuple[int, int]) -> None:
    source = RecordedSource([minimal])
    app = ReplayApp(recorded_control(source), source)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        await until(pilot, lambda: app.control.state.ended)
        assert "MY-ENGINE" in screen_text(app)
        for key in ("n", "comma", "v", "v", "v", "down", "plus", "tab", "full_stop", "home"):
            await pilot.press(key)
        await pilot.pause(0.05)
        assert "round 1" in screen_text(app)


async def test_what_the_minimal_trace_does_not_tell_is_not_zero(minimal: Path) -> None:
    source = RecordedSource([minimal])
    app = ReplayApp(recorded_control(source), source)
    async with app.run_test(size=(150, 40)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        await until(pilot, lambda: app.control.state.ended)
        await pilot.press("end")
        await pilot.pause(0.05)
        shown = screen_text(app)
        assert re.search(r"▸ 0■ +– +8 +– +– +–", shown)  # row, pad, c, δ, kv, pos
        assert "L = –" in shown
        assert "K –" in shown
        assert "tok/s" not in shown
        assert "a prompt › ⟨4⟩⟨8⟩⟨16⟩⟨42⟩⟨0⟩" in shown
        assert "no costs were recorded" in shown
        await pilot.press("enter")
        await pilot.pause(0.05)
        shown = screen_text(app)
        assert "how it lay in memory was not recorded" in shown
        assert not re.search("0 slots|δ = 0|stays", shown)


def test_before_is_not_needed(tmp_path: Path, minimal: Path) -> None:
    bare = re.sub(r'"before":\d+,', "", minimal.read_text(encoding="utf-8"))
    path = tmp_path / "bare.jsonl"
    path.write_text(bare, encoding="utf-8")
    timeline = Timeline()
    for record in read_trace(path):
        timeline.add(record)  # type: ignore[arg-type]
    assert timeline.tracks[0].tokens == [12, 7, 30, 4, 8, 16, 42, 0]
    last = timeline.round_at(2)
    assert last is not None
    assert [(row.before, row.content) for row in last.rows] == [(6, 8), (2, 4)]
