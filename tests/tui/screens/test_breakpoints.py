"""Breakpoints in the app: the run is held, the list is edited, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, OptionList

from engine.config.errors import UserError
from engine.microscope.breakpoints import parse_breakpoint
from engine.runs.worker import State
from tests.tui_app import MadeUp, make_app, ready, screen_text, until
from tui.screens.breakpoints import BreakpointsScreen
from tui.session.breakpoints import Breaking

pytestmark = pytest.mark.usefixtures("home")


async def test_the_run_is_held_and_the_status_says_which_and_why(home: Path) -> None:
    app = make_app(MadeUp(delay=0.01))
    app.breaking.give([parse_breakpoint("round=6")])
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await ready(pilot, 6)
        await until(pilot, lambda: app.control.state is State.PAUSED)
        assert app.control.timeline.last == 6
        await until(pilot, lambda: "◉ round=6" in screen_text(app))
        assert any("round=6 in round 6" in notice.message for notice in app._notifications)
        await pilot.press("space")
        await until(pilot, lambda: app.control.timeline.last > 8)
        await until(pilot, lambda: "◉" not in screen_text(app))


async def test_the_list_is_edited_by_keys_and_kept(home: Path) -> None:
    app = make_app(paused=True)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        await pilot.press("B")
        await until(pilot, lambda: isinstance(app.screen, BreakpointsScreen))
        app.screen.query_one(Input).value = "accept=K row=2"
        await pilot.press("enter")
        assert [str(point) for point in app.breaking.points] == ["accept=K row=2"]
        assert app.screen.query_one(OptionList).has_focus
        assert Breaking().points == app.breaking.points
        await pilot.press("space")
        assert app.breaking.points == ()
        assert [entry.on for entry in Breaking().entries] == [False]
        await pilot.press("d")
        assert Breaking().entries == []
        await pilot.press("escape")
        assert not isinstance(app.screen, BreakpointsScreen)


async def test_a_bad_condition_is_reported_and_stays_to_be_mended(home: Path) -> None:
    app = make_app(paused=True)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("B")
        await until(pilot, lambda: isinstance(app.screen, BreakpointsScreen))
        box = app.screen.query_one(Input)
        box.value = "accept=lots [/INST]"
        await pilot.press("enter")
        await pilot.pause(0.05)
        assert any("accept=K" in notice.message for notice in app._notifications)
        assert box.value == "accept=lots [/INST]"


async def test_a_breakpoint_that_is_added_while_it_runs_holds_the_run(home: Path) -> None:
    app = make_app(MadeUp(delay=0.005))
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot, 2)
        app.breaking.add("accept>=0")
        await until(pilot, lambda: app.control.state is State.PAUSED)


def test_what_the_command_line_gives_is_for_this_time_only(home: Path) -> None:
    breaking = Breaking([parse_breakpoint("finish")])
    breaking.add("I2")
    assert [str(point) for point in breaking.points] == ["finish", "I2"]
    assert [str(point) for point in Breaking().points] == ["I2"]
    with pytest.raises(UserError, match="already"):
        breaking.add("i2")


def test_a_file_that_cannot_be_read_is_no_obstacle(home: Path) -> None:
    (home / "config").mkdir(parents=True)
    file = home / "config" / "breakpoints.json"
    file.write_text("[[[")
    assert Breaking().entries == []
    file.write_text('[{"when": "explode"}, {"when": "finish", "on": false}]')
    assert [(str(entry.point), entry.on) for entry in Breaking().entries] == [("finish", False)]
