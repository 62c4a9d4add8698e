"""The app, by its keys."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from textual.widgets import OptionList

from engine.runs.worker import State
from tests.tui_app import MadeUp, make_app, ready, screen_text, until
from tui.screens.error import ErrorScreen
from tui.screens.help import HelpScreen
from tui.screens.main import MainScreen
from tui.view.state.cursor import Cursor, Phase
from tui.view.state.frame import CellMode
from tui.widgets.keys import KEYS

SIZES = [(160, 45), (120, 35), (80, 24), (40, 12)]


async def test_run_and_pause() -> None:
    app = make_app(MadeUp(delay=0.01))
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot, 3)
        await pilot.press("space")
        await until(pilot, lambda: app.control.state is State.PAUSED)
        held = app.control.timeline.last
        await pilot.pause(0.15)
        assert app.control.timeline.last <= held + 1
        await pilot.press("space")
        await until(pilot, lambda: app.control.timeline.last > held + 3)


async def test_paused_at_the_start_shows_the_prompts() -> None:
    app = make_app(paused=True)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        assert app.control.timeline.last == 0
        shown = screen_text(app)
        assert "before round 1" in shown
        assert "The capital of France is" in shown
        await pilot.press("n")
        await until(pilot, lambda: app.control.timeline.last == 1)
        await pilot.press("3", "n")
        await until(pilot, lambda: app.control.timeline.last == 4)
        await until(pilot, lambda: app.playhead.cursor == Cursor(4))


async def test_the_past_stays_while_the_engine_goes_on() -> None:
    app = make_app(MadeUp(delay=0.01))
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot, 6)
        await pilot.press("p")
        parked = app.playhead.cursor
        last = app.control.timeline.last
        await until(pilot, lambda: app.control.timeline.last > last + 5)
        assert app.playhead.cursor == parked
        assert f"round {parked.round} of" in screen_text(app)
        await pilot.press("2", "p")
        assert app.playhead.cursor == Cursor(parked.round - 2)
        await pilot.press("home")
        assert app.playhead.cursor == Cursor(1)
        await pilot.press("4", "g")
        assert app.playhead.cursor == Cursor(4)
        await pilot.press("end")
        assert app.playhead.following


async def test_phases_by_key() -> None:
    app = make_app(paused=True)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        for phase in Phase:
            await pilot.press("full_stop")
            await until(pilot, lambda wanted=phase: app.playhead.cursor == Cursor(1, wanted))
        await pilot.press("comma")
        assert app.playhead.cursor == Cursor(1, Phase.ACCEPT)
        assert "★" in screen_text(app)
        await pilot.press("N")
        assert app.playhead.cursor == Cursor(1)


async def test_restart_begins_again() -> None:
    source = MadeUp(delay=0.005)
    app = make_app(source)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot, 10)
        old = app.control.timeline
        await pilot.press("r")
        await until(pilot, lambda: len(source.opened) == 2)
        await until(pilot, lambda: app.control.timeline is not old)
        await until(pilot, lambda: app.control.timeline.last > 0)
        assert app.playhead.following


async def test_method_and_draft_tokens() -> None:
    source = MadeUp(delay=0.005)
    app = make_app(source)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot, 2)
        await pilot.press("m")
        await until(pilot, lambda: bool(app.screen.query(OptionList)))
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: app.control.timeline.method == "slotspec")
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: source.opened[-1].draft_tokens == 6)
        await pilot.press("3", "left_square_bracket")
        await until(pilot, lambda: source.opened[-1].draft_tokens == 3)


async def test_cells_zoom_and_rows() -> None:
    app = make_app(MadeUp(delay=0.01))
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot, 12)
        await pilot.press("space")
        screen = app.screen
        assert isinstance(screen, MainScreen)
        for mode in (CellMode.POSITION, CellMode.SLOT, CellMode.MASK, CellMode.TOKEN):
            await pilot.press("v")
            assert screen.mode is mode
            assert mode.title in screen_text(app)
        for key in ("minus",) * 12 + ("plus",) * 14 + ("left", "5", "h", "right", "l"):
            await pilot.press(key)
        await pilot.press("down", "down")
        assert screen.selected is not None
        await pilot.press("up")


async def test_theme_and_help() -> None:
    app = make_app(paused=True)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        seen = {app.theme}
        for _ in range(3):
            await pilot.press("t")
            await pilot.pause()
            seen.add(app.theme)
        assert seen >= {"graphite", "paper", "okabe"}
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.pause(0.05)
        shown = screen_text(app)
        assert "Next phase" in shown
        assert "bonus" in shown
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)


async def test_builtin_themes_are_readable_too() -> None:
    app = make_app(paused=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        for name in ("nord", "textual-light", "ansi-dark", "ansi-light"):
            app.theme = name
            await pilot.pause(0.05)
            assert "batch" in screen_text(app)


async def test_quit_while_the_engine_is_busy() -> None:
    app = make_app(MadeUp(busy=0.3))
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, MainScreen), 20.0)
        begin = time.monotonic()
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running, 5.0)
        assert time.monotonic() - begin < 1.0
    assert app.return_value == 0


async def test_quit_while_loading() -> None:
    app = make_app(MadeUp(delay=2.0))
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.pause(0.2)
        assert "loading the target" in screen_text(app)
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running, 1.0)


HOSTILE = (
    "[/INST] [bold red]x[/]",
    "clear \x1b[2J\x1b]0;title\x07",
    "reverse \u202eabc\u202c",
    "emoji 😀 👩\u200d👩\u200d👧",
    "日本語 のテキスト",
    "\x9b31m \x00 \r\n",
)


@pytest.mark.parametrize("size", SIZES)
async def test_hostile_text(size: tuple[int, int]) -> None:
    words = ("[/INST]", "\x1b[2J", "\u202e", "😀", "日本語", "[bold]", "\r\n", "a\u0301", "\x9b")
    source = MadeUp(prompts=HOSTILE, words=words, delay=0.002)
    app = make_app(source, batch_size=6)
    async with app.run_test(size=size) as pilot:
        await ready(pilot, 8)
        for key in ("v", "v", "v", "v", "minus", "minus", "minus", "down", "tab", "p", "n"):
            await pilot.press(key)
        await pilot.pause(0.1)
        shown = screen_text(app)
        assert not any(ord(c) < 32 and c != "\n" for c in shown)
        assert not set(shown) & set("\x7f\x9b\u202e\u202c\u200d\u200b")
        await pilot.press("end")
        await until(pilot, lambda: app.control.state is State.FINISHED, 20.0)


@pytest.mark.parametrize(
    ("size", "method"),
    [
        *((size, "eqspec") for size in SIZES),
        ((120, 35), "exspec"),
        ((80, 24), "slotspec"),
        ((40, 12), "bsp"),
        ((160, 45), "dsd"),
    ],
)
async def test_sizes(size: tuple[int, int], method: str) -> None:
    app = make_app(MadeUp(delay=0.002, max_new_tokens=30), method=method)
    async with app.run_test(size=size) as pilot:
        await ready(pilot, 4)
        await pilot.press("p")
        for _ in range(5):
            await pilot.press("tab")
            await pilot.pause()
        shown = screen_text(app)
        assert "round" in shown
        assert "★" in shown
        await pilot.resize_terminal(60, 20)
        await pilot.pause(0.05)
        await pilot.resize_terminal(*size)
        await pilot.pause(0.05)
        assert "round" in screen_text(app)


async def test_an_engine_failure_is_shown_and_the_rounds_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    app = make_app(MadeUp(fail_after=5), log=log)
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ErrorScreen))
        await pilot.pause(0.05)
        shown = screen_text(app)
        assert "the model fell over [/INST] ␛[2J" in shown
        assert "5 rounds" in shown
        assert "Traceback: /" in shown
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)
        await pilot.press("2", "p")
        assert app.playhead.cursor == Cursor(3)
        assert "failed" in screen_text(app)
        await pilot.press("q")
    assert app.return_value == 1
    assert "RuntimeError" in log.read_text()


async def test_a_failure_while_loading(tmp_path: Path) -> None:
    app = make_app(MadeUp(fail_after=-1))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ErrorScreen))
        await pilot.pause(0.05)
        assert "before its first round" in screen_text(app)
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running, 2.0)


async def test_mouse() -> None:
    app = make_app(MadeUp(delay=0.01))
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot, 5)
        await pilot.press("space")
        screen = app.screen
        assert isinstance(screen, MainScreen)
        await pilot.click("#tensor", offset=(40, 4))
        await pilot.pause()
        record = app.control.timeline.round_at(app.playhead.cursor.round)
        assert record is not None
        assert screen.selected == record.rows[1].row
        await pilot.click("KeyBar", offset=(2, 0))
        await until(pilot, lambda: app.control.worker.running)


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
async def test_dialogs_on_small_screens(size: tuple[int, int]) -> None:
    app = make_app(paused=True)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        for key, word in (("question_mark", "help"), ("m", "method"), ("ctrl+p", "Search")):
            await pilot.press(key)
            await pilot.pause(0.1)
            assert word in screen_text(app)
            await pilot.press("escape")
            await pilot.pause(0.05)
        assert isinstance(app.screen, MainScreen)


def test_no_key_is_bound_twice() -> None:
    names = [name for key in KEYS for name in key.keys.split(",")]
    assert len(names) == len(set(names))


async def test_a_recorded_run_is_there_at_once_and_plays() -> None:
    source = MadeUp(live=False, max_new_tokens=40)
    app = make_app(source, paused=True, speed=5.0)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        await until(pilot, lambda: app.control.state is State.FINISHED)
        last = app.control.timeline.last
        await until(pilot, lambda: app.playhead.cursor == Cursor(last))
        await pilot.press("home")
        assert app.playhead.cursor == Cursor(1)
        await pilot.press("space")
        await until(pilot, lambda: app.playhead.cursor.round >= 3)
        await pilot.press("space")
        parked = app.playhead.cursor
        await pilot.pause(0.4)
        assert app.playhead.cursor == parked
        await pilot.press("r")
        await pilot.pause(0.1)
        assert len(source.opened) == 1


async def test_many_rows_scroll_and_follow_the_selection() -> None:
    prompts = tuple(f"Prompt number {number} begins here" for number in range(64))
    app = make_app(MadeUp(prompts=prompts, ends=0.0), batch_size=64, paused=True)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        await pilot.press("3", "n")
        await until(pilot, lambda: app.playhead.cursor == Cursor(3))
        await pilot.press("5", "0", "down")
        await pilot.pause(0.1)
        screen = app.screen
        assert isinstance(screen, MainScreen)
        assert screen.selected == 50
        tensor = screen.query_one("#tensor")
        assert tensor.scroll_y > 20
        assert "▸ 50" in screen_text(app)
        await pilot.press("5", "0", "up")
        await pilot.pause(0.1)
        assert tensor.scroll_y == 0


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
@pytest.mark.parametrize("method", ["bsp", "slotspec"])
async def test_a_small_screen_shows_that_an_invariant_is_broken(
    size: tuple[int, int], method: str
) -> None:
    """Whichever pane is in view."""
    app = make_app(MadeUp(max_new_tokens=40), method=method)
    async with app.run_test(size=size) as pilot:
        await ready(pilot, rounds=5)
        await until(pilot, lambda: app.control.state is State.FINISHED)
        await pilot.pause(0.1)
        broken = sorted({violation.invariant for _, violation in app.control.timeline.breaks})
        assert bool(broken) == (method == "bsp")
        for _ in range(4):
            await pilot.press("tab")
            await pilot.pause(0.05)
            lines = screen_text(app).splitlines()
            tabs = next(line for line in lines if "texts  cost" in line)
            if not broken:
                assert not re.search("[✗!] I", "".join(lines[:2]))
                assert "✗" not in tabs
                continue
            assert re.search("[✗!] I", "".join(lines[:2]))
            assert re.search("[✗!] invariants", tabs)


async def test_ctrl_c_tells_the_key_that_quits() -> None:
    app = make_app(paused=True)
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "Press q." in screen_text(app))
        assert "ctrl+q" not in screen_text(app)
