"""A check in the app: rows, the two texts of one, given up, and what cannot be read."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

import engine.pairs.load  # noqa: F401 - once, before the clock of a test runs
from engine.config.settings import Settings
from engine.evaluation.check.outputs import Foreign, read_foreign
from engine.runs.worker import Progress, State
from tests.tiny import finished, mixed_prompts, tiny_pair
from tests.tui.app.test_replay import said
from tests.tui.screens.test_change import toy_app
from tests.tui_app import ready, screen_text, until
from tui.app.check_app import CheckApp
from tui.screens.check import CheckScreen, TextsScreen
from tui.screens.main import MainScreen
from tui.session.check import CheckSource, check_settings, checked
from tui.session.control import Control
from tui.view.lines import plain, width_of
from tui.view.panes.check import columns, entries, entry_line, head_line
from tui.view.state.checked import Checked

PROMPTS = mixed_prompts(4, seed=5)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Row 0 as it should be, row 1 with a wrong token, row 2 with one twice, row 3 cut."""
    outputs = [
        list(ids) for ids in finished(tiny_pair(eos_ids=()), PROMPTS, max_new_tokens=12).outputs
    ]
    outputs[1][6] = 1 if outputs[1][6] != 1 else 3
    outputs[2].insert(5, outputs[2][4])
    del outputs[3][7:]
    path = tmp_path / "mine.jsonl"
    path.write_text(
        "".join(
            json.dumps({"prompt_ids": prompt.ids, "output_ids": ids, "finish_reason": reason})
            + "\n"
            for prompt, ids, reason in zip(
                PROMPTS, outputs, ("length", "length", "length", "eos"), strict=True
            )
        )
    )
    return path


def ask(foreign: Foreign, progress: Progress) -> Checked:
    settings = check_settings(foreign, Settings())
    return checked(tiny_pair(eos_ids=()), foreign, settings, None, progress)


def test_every_row_has_a_line_that_fits(file: Path) -> None:
    found = ask(read_foreign(file), lambda stage, fraction: None)
    rows = entries(found)
    assert [row.share for row in rows] == [1.0, 6 / 12, 5 / 13, 7 / 13]
    assert [row.cause.cause if row.cause else None for row in rows][2:] == ["repeated", "stopped"]
    for width in (60, 80, 118, 200):
        assert width_of(head_line(width)) <= width
        for row in rows:
            line = entry_line(row, found.tokenizer.piece, width)
            assert width_of(line) == width
            assert ("why" in [one.name for one in columns(width)]) == (width >= 80)
    assert "exact ✓" in plain(entry_line(rows[0], found.tokenizer.piece, 80))


@pytest.mark.parametrize("size", [(120, 35), (80, 24)])
async def test_the_rows_and_the_two_texts_of_one(file: Path, size: tuple[int, int]) -> None:
    control = Control(CheckSource(file, ask), Settings())
    app = CheckApp(control)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "rows exact" in screen_text(app), 30)
        shown = screen_text(app)
        assert "1 of 4 rows exact" in shown
        assert "repeated" in shown
        await texts_of(pilot, "d", "row 1 · new token 6")
        expected, got = entries(control.source.found)[1].cause, None  # type: ignore[attr-defined]
        assert expected is not None
        got = expected.got
        assert f"≠{got}" in screen_text(app).replace("≠⟨", "≠"), "the ids are shown too"
        await pilot.press("d")
        await until(pilot, lambda: "row 2 · new token 5" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, CheckScreen))
        await pilot.press("escape")
    assert app.return_code == 0


async def texts_of(pilot: Pilot[Any], key: str, wanted: str) -> None:
    await pilot.press(key)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, TextsScreen))
    await until(pilot, lambda: wanted in screen_text(pilot.app))


async def test_keys_are_heard_while_it_goes_on_and_it_can_be_given_up(file: Path) -> None:
    go_on = threading.Event()

    def slow(foreign: Foreign, progress: Progress) -> Checked:
        while not go_on.wait(0.01):
            progress("oracle", 0.25)
        raise AssertionError("it was given up before")

    control = Control(CheckSource(file, slow), Settings())
    app = CheckApp(control)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "25 %" in screen_text(app))
        await pilot.press("question_mark")
        await until(pilot, lambda: "help" in screen_text(app))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: control.worker.state is State.STOPPED)
    assert control.source.found is None  # type: ignore[attr-defined]


async def test_from_the_run_and_back(tmp_path: Path) -> None:
    app = toy_app()
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "the river", "output_ids": [300, 301, 302]}\n')
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("2", "n")
        await until(pilot, lambda: app.control.timeline.last == 2)
        for name, shown in (("none.jsonl", "no such file"), ("mine.jsonl", "rows exact")):
            await pilot.press("c")
            await pilot.pause(0.1)
            await pilot.press("ctrl+u", *str(tmp_path / name), "enter")
            await until(pilot, lambda s=shown: s in screen_text(app) + said(app), 30)  # type: ignore[misc]
        assert "0 of 1 rows exact" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        await pilot.press("n")
        await until(pilot, lambda: app.control.timeline.last == 3)
