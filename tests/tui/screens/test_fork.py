"""A fork on the screen: asked for at the cursor, gone on with, left, and replayed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

import engine.pairs.load  # noqa: F401 - once, before the clock of a test runs
from engine.config.settings import Settings
from engine.pairs.registry import PairRequest
from engine.records.schema import RoundRecord, RunHeader
from engine.records.trace import read_trace
from engine.text.prompts import PromptEntry
from tests.tui.app.test_replay import app_of, opened, pictures, said
from tests.tui_app import make_app, ready, screen_text, until
from tui.app.app import BatchspecApp
from tui.screens.ask import ChooseScreen
from tui.screens.compare import CompareScreen
from tui.screens.faults import FaultScreen
from tui.screens.fork import STAYS, ForkScreen
from tui.screens.main import MainScreen
from tui.session.compare import CompareControl
from tui.session.control import Control
from tui.session.fork import ForkControl, settings_at
from tui.session.live import LiveSource
from tui.session.request import AppRequest
from tui.view.state.cursor import Cursor

PROMPTS = tuple(PromptEntry(text=text) for text in ("the river", "a cold stone", "old book"))


def toy_app(trace: Path | None = None) -> BatchspecApp:
    settings = Settings(
        batch_size=2, draft_tokens=4, max_new_tokens=40, inspect=True, dtype="float32", threads=1
    )
    request = AppRequest(
        pair=PairRequest(name="toy"), settings=settings, prompts=PROMPTS, trace=trace, chat=False
    )
    return BatchspecApp(Control(LiveSource(request), settings, paused=True))


async def forked(app: BatchspecApp, pilot: object, *keys: str) -> ForkControl:
    """Six rounds, back to the fourth, and a fork there with what these keys choose."""
    await ready(pilot)  # type: ignore[arg-type]
    await pilot.press("6", "n")  # type: ignore[attr-defined]
    await until(pilot, lambda: app.control.timeline.last == 6)  # type: ignore[arg-type]
    await pilot.press("4", "g", "F")  # type: ignore[attr-defined]
    await pilot.pause(0.1)  # type: ignore[attr-defined]
    assert "fork after round 4" in screen_text(app)
    for key in keys:
        await pilot.press(key)  # type: ignore[attr-defined]
        await pilot.pause(0.05)  # type: ignore[attr-defined]
    await pilot.press("enter")  # type: ignore[attr-defined]
    await until(pilot, lambda: isinstance(app.screen, ForkScreen))  # type: ignore[arg-type]
    fork = app.control.beside
    assert isinstance(fork, ForkControl)
    await until(pilot, lambda: fork.comparison.last == 4 and not fork.reading)  # type: ignore[arg-type]
    await until(pilot, lambda: fork.playhead.cursor == Cursor(4))  # type: ignore[arg-type]
    return fork


FAULT = ("down", "down", "enter", "down", "down", "down", "down", "enter")
"""In the dialogue: a fault, the fourth of the list, which keeps rejected K/V."""


async def test_both_lanes_go_on_from_one_past_and_the_first_difference_is_marked() -> None:
    app = toy_app()
    async with app.run_test(size=(140, 35), notifications=True) as pilot:
        fork = await forked(app, pilot, *FAULT)
        await until(pilot, lambda: "FORK after round 4" in screen_text(app))
        shown = screen_text(app)
        assert shown.count("⋔") >= 5, "behind each row's text in both lanes, and in the heading"
        assert "≠" not in shown
        first, second = fork.comparison.lanes[0][0], fork.comparison.lanes[1][0]
        await pilot.press("2", "n")
        await until(pilot, lambda: second.timeline.last == 6)
        assert app.control.timeline.last == 6, "these rounds of the run were there already"
        await pilot.press("space")
        await until(pilot, lambda: fork.state.ended, 30)
        assert [r.fault for r in second.timeline.rounds[3:5]] == ["", "rejected-kv-kept"]
        assert second.match.divergences
        assert not first.match.divergences
        await pilot.press("d")
        await until(pilot, lambda: "≠" in screen_text(app))
        await pilot.press("r", "m", "s")
        await until(pilot, lambda: STAYS in said(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        assert app.playhead.cursor == Cursor(4)
        await until(pilot, lambda: app.control.timeline.last == first.timeline.last)
        await pilot.press("F")
        await pilot.pause(0.1)
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, ForkScreen))
        assert app.control.beside is fork, "the fork is there as it was left"


async def test_a_fork_and_a_comparison_are_kept_beside_each_other() -> None:
    app = toy_app()
    async with app.run_test(size=(140, 35)) as pilot:
        fork = await forked(app, pilot, *FAULT)
        await pilot.press("n")
        await until(pilot, lambda: fork.comparison.last == 5)
        await pilot.press("F")
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        compared = app.control.beside
        assert isinstance(compared, CompareControl)
        assert compared is not fork
        await until(pilot, lambda: compared.comparison.complete, 30)
        await pilot.press("n")
        await until(pilot, lambda: compared.comparison.last == 1, 30)
        for _ in range(2):
            await pilot.press("b")
            await until(pilot, lambda: isinstance(app.screen, MainScreen))
            await pilot.press("F")
            await pilot.pause(0.1)
            assert "the fork there is" in screen_text(app)
            await pilot.press("down", "enter")
            await until(pilot, lambda: isinstance(app.screen, ForkScreen))
            assert app.control.beside is fork, "it is as it was left"
            assert fork.comparison.last == 5
            await pilot.press("F")
            await until(pilot, lambda: isinstance(app.screen, MainScreen))
            await pilot.press("b")
            await until(pilot, lambda: isinstance(app.screen, CompareScreen))
            assert app.control.beside is compared, "it is as it was left"
            assert compared.comparison.last == 1
        await pilot.press("n")
        await until(pilot, lambda: compared.comparison.last == 2, 30)
        assert app.control.besides == [fork, compared]
    assert app.control.stop(5.0)
    assert fork.worker.state.ended, "both end with the run"
    assert compared.worker.state.ended


async def test_a_recorded_fork_looks_as_it_did_live(tmp_path: Path, home: Path) -> None:
    live = toy_app(tmp_path / "run.jsonl")
    shown = []
    async with live.run_test(size=(160, 40)) as pilot:
        fork = await forked(live, pilot, *FAULT)
        await pilot.press("space")
        await until(pilot, lambda: fork.state.ended, 30)
        shown.append(await pictures(live, pilot))
    path = tmp_path / "run.fork.jsonl"
    recorded = app_of(path)
    async with recorded.run_test(size=(160, 40)) as pilot:
        await opened(recorded, pilot)
        recorded.control.speed = recorded.playhead.speed = None
        shown.append(await pictures(recorded, pilot))
    assert shown[0] == shown[1]
    headers = [one for one in read_trace(path) if isinstance(one, RunHeader)]
    assert [(one.lanes, one.fork) for one in headers] == [(2, None), (2, 4)]
    run = [one for one in read_trace(tmp_path / "run.jsonl") if isinstance(one, RoundRecord)]
    lane = [one for one in read_trace(path) if isinstance(one, RoundRecord) and one.lane == 0]
    assert run == lane


async def test_the_dialogue_shows_what_is_otherwise_and_refuses_what_cannot_be() -> None:
    app = toy_app()
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("3", "n")
        await until(pilot, lambda: app.playhead.cursor == Cursor(3))
        await pilot.pause(0.8)  # the last round is shown phase by phase
        await pilot.press("left_square_bracket", "n")
        await until(pilot, lambda: app.control.timeline.last == 4)
        assert settings_at(app.control, 2).draft_tokens == 4
        assert settings_at(app.control, 4).draft_tokens == 3
        await pilot.press("2", "g", "F")
        await pilot.pause(0.1)
        await pilot.press(*["down"] * 9, "enter")
        await pilot.pause(0.1)
        await pilot.press("ctrl+u", "9", "9", "enter")
        await until(pilot, lambda: "--draft-tokens must be between" in screen_text(app))
        await pilot.press(*["down"] * 9, "enter")
        await pilot.pause(0.1)
        await pilot.press("ctrl+u", "1", "enter")
        await until(pilot, lambda: "4 → 1" in screen_text(app))
        await pilot.press("escape")
        await pilot.pause(0.1)
        assert isinstance(app.screen, MainScreen)
        assert app.control.beside is None


async def test_a_recorded_run_is_not_forked() -> None:
    app = make_app()
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await ready(pilot, 3)
        await pilot.press("F")
        await until(pilot, lambda: "cannot be forked" in screen_text(app))


async def rounds(app: BatchspecApp, pilot: Pilot[Any], count: int) -> None:
    """So many rounds more, by the key for one."""
    for _ in range(count):
        last = app.control.timeline.last
        await pilot.press("n")
        await until(pilot, lambda wanted=last + 1: app.control.timeline.last == wanted)  # type: ignore[misc]


async def fault(app: BatchspecApp, pilot: Pilot[Any]) -> None:
    """Switch the first fault of the list on, or off where it is on."""
    await pilot.press("f")
    await until(pilot, lambda: isinstance(app.screen, FaultScreen))
    await pilot.press("enter")
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, MainScreen))


async def go_back(app: BatchspecApp, pilot: Pilot[Any]) -> None:
    """To where the rows stood after round 2, from the next round on."""
    assert isinstance(app.screen, MainScreen)
    app.screen.changes.go_back(2)
    await until(pilot, lambda: len(app.control.timeline.changes) > 0)


async def other_k(app: BatchspecApp, pilot: Pilot[Any]) -> None:
    """Another K from the next round on."""
    await pilot.press("left_square_bracket")


async def fault_off(app: BatchspecApp, pilot: Pilot[Any]) -> None:
    """A fault was on for five rounds, and is off from the next one on."""
    await fault(app, pilot)
    await rounds(app, pilot, 5)
    await fault(app, pilot)


async def fault_off_and_on_for_a_round(app: BatchspecApp, pilot: Pilot[Any]) -> None:
    await fault_off(app, pilot)
    await rounds(app, pilot, 1)


def facts(record: RoundRecord) -> list[tuple[object, ...]]:
    """What a round did. A fault's tokens depend on what was left in the cache."""
    rows = record.rows
    return [(row.row, row.before, () if record.fault else row.committed) for row in rows]


CHANGES = [go_back, other_k, fault, fault_off, fault_off_and_on_for_a_round]


@pytest.mark.parametrize("number", [None, 4, 5])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_a_fork_at_any_round_of_a_run_that_was_changed(
    change: Callable[[BatchspecApp, Pilot[Any]], Awaitable[None]], number: int | None
) -> None:
    """Before, at and after the change, which may be yet to come: under the same settings the
    first round of both lanes is the same, and every round can be looked at."""
    app = toy_app()
    async with app.run_test(size=(140, 35), notifications=True) as pilot:
        await ready(pilot)
        app.playhead.animate = False
        await rounds(app, pilot, 5)
        await change(app, pilot)
        here = app.control.timeline.last if number is None else number
        if here > app.control.timeline.last:
            await rounds(app, pilot, here - app.control.timeline.last)
        if number is not None:
            await pilot.press(*str(number), "g")
        await pilot.press("F")
        await until(pilot, lambda: isinstance(app.screen, ChooseScreen))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ForkScreen))
        fork = app.control.beside
        assert isinstance(fork, ForkControl)
        await until(pilot, lambda: not fork.reading and len(fork.comparison.lanes) == 2)
        lanes = [fork.comparison.lanes[lane][0].timeline for lane in (0, 1)]
        for step in (1, 2):
            await pilot.press("n")
            await until(pilot, lambda w=here + step: min(t.last for t in lanes) >= w, 30)  # type: ignore[misc]
        first, second = (timeline.rounds[here] for timeline in lanes)
        assert first.back == second.back
        assert facts(first) == facts(second)
        for place in (*range(1, here + 3), here):
            await pilot.press(*str(place), "g")
            await pilot.pause(0.01)
        await pilot.press("F")
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
    assert not app._exception
    assert app.control.stop(5.0)
