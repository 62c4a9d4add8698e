"""docs/trace.md is the format: its lines can be read, and every field is in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from engine import records
from engine.foreign import read_foreign
from engine.records import SCHEMA, Record, RoundRecord
from engine.trace import KINDS, read_trace
from tests.tui_app import screen_text, until
from tui.replay import RecordedSource, ReplayApp, recorded_control
from tui.screens.main import MainScreen

TEXT = (Path(__file__).parent.parent / "docs" / "trace.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```json\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
LINES = [line for example in EXAMPLES for line in example.splitlines()]
STRUCTS = [
    kind
    for kind in vars(records).values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct
]

FIELDS = {name for struct in STRUCTS for name in struct.__struct_fields__}
FREE = ("settings", "versions", "pieces", "rounds", "back")
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
