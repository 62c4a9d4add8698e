"""Searching, copying, and the command line that makes a run again."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from engine.config.settings import Sampling, Settings
from engine.records.schema import PairInfo, Prompt, RunHeader
from engine.text.prompts import shipped_prompts
from tests.synthetic import records
from tests.tui_app import make_app, ready, screen_text, until
from tui.screens.copy import copied
from tui.screens.inspect import InspectScreen
from tui.session.reproduce import command_line
from tui.view.state.cursor import Cursor
from tui.view.state.frame import Frame
from tui.view.state.search import Hits, find
from tui.view.state.timeline import Timeline
from tui.widgets import clipboard


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    made = Timeline()
    for record in records("eqspec", max_new_tokens=60):
        made.add(record)  # type: ignore[arg-type]
    return made


def test_a_text_is_found_in_the_round_that_committed_it(timeline: Timeline) -> None:
    hits = find(timeline, "water")
    assert hits
    assert hits == sorted(hits)
    for hit in hits:
        token = timeline.tracks[hit.row].tokens[hit.place]
        assert timeline.piece(token) == " water"
        record = timeline.round_at(hit.number)
        assert record is not None
        assert token in next(row for row in record.rows if row.row == hit.row).committed


def test_a_text_over_several_tokens_and_in_a_prompt(timeline: Timeline) -> None:
    (hit,) = find(timeline, "capital of france")
    assert (hit.row, hit.place) == (0, 3)
    assert hit.number == 1
    assert find(timeline, "Capital of France") == []
    assert find(timeline, "") == []


def test_token_ids_are_found_in_a_row(timeline: Timeline) -> None:
    tokens = timeline.tracks[3].tokens
    first, second = tokens[12], tokens[13]
    places = [hit.place for hit in find(timeline, f"#{first} #{second}") if hit.row == 3]
    assert 13 in places
    assert find(timeline, "#999999") == []


def test_from_hit_to_hit_and_round_again(timeline: Timeline) -> None:
    found = find(timeline, "the")
    hits = Hits("the", found, found[2].number)
    assert hits.current is not None
    assert hits.current.number == found[2].number
    hits.walk(-1)
    for _ in range(len(found)):
        before = hits.current
        hits.walk(1)
    assert hits.current is not None
    assert before is not None
    hits.walk(len(found) - 1)
    assert hits.current == before


def test_what_is_copied_is_what_there_is_at_the_cursor(timeline: Timeline) -> None:
    frame = Frame(timeline=timeline, cursor=Cursor(5), selected=1)
    track = timeline.tracks[1]
    ids = [int(word) for word in copied(frame, "ids").split()]
    assert ids == track.tokens[track.prompt_length : track.length_at(5)]
    assert copied(frame, "all").split()[: track.prompt_length] == [str(t) for t in track.prompt.ids]
    assert copied(frame, "text") == "".join(timeline.piece(token) for token in ids)
    assert copied(frame, "command").startswith("batchspec-tui run")


def header(texts: list[str], pair: PairInfo, **settings: Any) -> RunHeader:
    return RunHeader(
        method=settings.get("method", "eqspec"),
        pair=pair,
        settings=settings,
        prompts=tuple(Prompt(index=i, ids=(1,), text=text) for i, text in enumerate(texts)),
    )


def test_the_command_line_is_understood_by_the_program() -> None:
    from tui.cli.commands.run import run

    line = command_line(
        header(
            ["it's", "a [b]"],
            PairInfo(name="toy", target="toy-target"),
            method="slotspec",
            batch_size=2,
            draft_tokens=3,
            temperature=0.5,
            device="cpu",
            dtype="float32",
            strict=True,
            inspect=True,
        )
    )
    assert line == (
        "batchspec-tui run --model-pair toy --method slotspec --batch-size 2 --draft-tokens 3 "
        "--temperature 0.5 --device cpu --dtype float32 --strict --prompt 'it'\"'\"'s' "
        "--prompt 'a [b]'"
    )
    shown = CliRunner().invoke(run, ["--help"]).output
    assert all(word in shown for word in line.split() if word.startswith("--") and len(word) > 2)


def test_shipped_prompts_are_not_typed_out() -> None:
    texts = [entry.text for entry in shipped_prompts()]
    pair = PairInfo(name="a/b", target="a/b", draft="c/d")
    assert command_line(header(texts, pair)) == (
        "batchspec-tui run --target a/b --draft c/d --method eqspec"
    )
    assert command_line(header(texts[:5], pair)).endswith("--limit 5")


def test_every_setting_has_its_option() -> None:
    from tui.cli.commands.run import run
    from tui.session.reproduce import LEFT_OUT

    names = {*Settings.__struct_fields__, *Sampling.__struct_fields__} - {"sampling", *LEFT_OUT}
    options = {name for parameter in run.params for name in parameter.opts}
    assert {f"--{name.replace('_', '-')}" for name in names} <= options


async def test_search_by_its_keys() -> None:
    app = make_app(paused=True)
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("8", "n")
        await until(pilot, lambda: app.playhead.cursor == Cursor(8))
        await pilot.press("home")
        await pilot.press("slash", *"the", "enter")
        await pilot.pause(0.2)
        hits = app.screen.hits  # type: ignore[attr-defined]
        assert hits.hits
        first = hits.current
        assert app.playhead.cursor == Cursor(first.number)
        assert app.screen.selected == first.row  # type: ignore[attr-defined]
        assert f"{hits.at + 1} of {len(hits.hits)}: row {first.row}" in screen_text(app)
        await pilot.press("ctrl+n")
        assert hits.current == hits.hits[(hits.hits.index(first) + 1) % len(hits.hits)]
        await pilot.press("ctrl+u", "enter")
        await until(pilot, lambda: isinstance(app.screen, InspectScreen))
        await pilot.press("escape", "slash")
        await pilot.pause(0.1)
        await pilot.press(*"[/b]zzz", "enter")
        await pilot.pause(0.2)
        assert "is nowhere" in screen_text(app)


@pytest.mark.parametrize("works", [True, False])
async def test_copy_says_by_which_way(monkeypatch: pytest.MonkeyPatch, works: bool) -> None:
    texts: list[str] = []

    def paste(text: str, taken: list[bool]) -> None:
        texts.append(text)
        taken.append(works)

    monkeypatch.setattr(clipboard, "_paste", paste)
    app = make_app(paused=True)
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("3", "n")
        await until(pilot, lambda: app.playhead.cursor == Cursor(3))
        await pilot.press("y")
        await pilot.pause(0.1)
        await pilot.press("enter")
        way = "copied to the clipboard" if works else "OSC 52"
        await until(pilot, lambda: way in screen_text(app))
        assert texts == ["".join(app.control.timeline.tracks[0].text_at(3))]
