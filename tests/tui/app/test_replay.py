"""Recorded runs: opened with every pane, laid side by side, and never trusted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from engine.config.errors import UserError
from engine.config.settings import Settings
from engine.microscope.breakpoints import parse_breakpoint
from engine.pairs.registry import PairRequest
from engine.records.schema import Record, RoundRecord, RunHeader, Summary
from engine.records.trace import TraceWriter, read_trace
from engine.text.prompts import PromptEntry
from tests import synthetic
from tests.tui_app import MadeUp, make_app, ready, screen_text, until
from tui.app.app import BatchspecApp
from tui.app.replay_app import RecordedSource, ReplayApp, recorded_control
from tui.screens.compare import CompareScreen
from tui.screens.faults import FaultScreen
from tui.screens.main import MainScreen
from tui.screens.recorded import RecordedControl, RecordedScreen
from tui.session.compare import CompareControl
from tui.session.control import Control
from tui.session.live import LiveSource
from tui.session.request import AppRequest
from tui.view.state.cursor import Cursor


def record(path: Path, method: str = "eqspec", **options: object) -> list[Record]:
    made = list(synthetic.records(method, **options))  # type: ignore[arg-type]
    with TraceWriter(path) as writer:
        for one in made:
            writer.write(one)
    return made


def app_of(*paths: Path) -> ReplayApp:
    source = RecordedSource(paths)
    return ReplayApp(recorded_control(source), source)


def said(app: BatchspecApp) -> str:
    """What the app has shown the user."""
    return "\n".join(notice.message for notice in app._notifications)


async def opened(app: ReplayApp, pilot: object) -> None:
    await until(pilot, lambda: isinstance(app.screen, MainScreen | RecordedScreen))  # type: ignore[arg-type]
    await until(pilot, lambda: app.control.state.ended)  # type: ignore[arg-type]


async def test_it_opens_at_the_first_round_and_every_round_is_there(tmp_path: Path) -> None:
    made = record(tmp_path / "t.jsonl.zst")
    rounds = sum(isinstance(one, RoundRecord) for one in made)
    app = app_of(tmp_path / "t.jsonl.zst")
    async with app.run_test(size=(120, 35)) as pilot:
        await opened(app, pilot)
        assert app.playhead.cursor == Cursor(1)
        assert app.control.timeline.last == rounds
        await pilot.press("end")
        assert app.playhead.cursor == Cursor(rounds)
        await pilot.press("home", "space")
        await until(pilot, lambda: app.playhead.cursor.round >= 3)


async def test_a_moment_looks_as_it_did_live(tmp_path: Path) -> None:
    record(tmp_path / "t.jsonl", max_new_tokens=400)
    live, again = make_app(MadeUp()), app_of(tmp_path / "t.jsonl")
    shown = []
    for app in (live, again):
        async with app.run_test(size=(120, 35)) as pilot:
            await ready(pilot, 20)
            await until(pilot, lambda app=app: app.control.state.ended)
            await pilot.press("1", "2", "g")
            await pilot.pause(0.1)
            lines = screen_text(app).splitlines()
            shown.append(lines[1:-1])  # the status line tells the speed, the foot other keys
    assert shown[0] == shown[1]


async def test_the_foot_of_a_replay_has_no_key_that_would_change_the_run(tmp_path: Path) -> None:
    record(tmp_path / "t.jsonl")
    app = app_of(tmp_path / "t.jsonl")
    async with app.run_test(size=(160, 35)) as pilot:
        await opened(app, pilot)
        foot = screen_text(app).splitlines()[-1]
        for label in ("run", "next", "inspect", "broken", "search", "quit"):
            assert label in foot
        for label in ("compare", "faults", "method", "change", "fork", "restart", " K "):
            assert label not in foot
        await pilot.press("m")
        await until(pilot, lambda: "stays with its method" in said(app))
        assert isinstance(app.screen, MainScreen)
        await pilot.press("f")
        await until(pilot, lambda: isinstance(app.screen, FaultScreen))
        assert "Met by others" in screen_text(app)
        assert "switches it" not in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        assert "cannot be given a fault" in said(app)


async def test_a_recorded_run_cannot_be_started_again(tmp_path: Path) -> None:
    record(tmp_path / "t.jsonl")
    app = app_of(tmp_path / "t.jsonl")
    async with app.run_test(size=(120, 35)) as pilot:
        await opened(app, pilot)
        await pilot.press("r")
        await until(pilot, lambda: "cannot be started again" in said(app))


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.zst"])
async def test_a_cut_trace_is_opened_up_to_the_cut_with_a_notice(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    made = record(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    words = "was cut off" if path.suffix == ".zst" else "the trace ends in the middle of line"
    app = app_of(path)
    async with app.run_test(size=(120, 35)) as pilot:
        await opened(app, pilot)
        assert 0 < app.control.timeline.last < len(made) - 2
        await until(pilot, lambda: words in said(app))
        await until(pilot, lambda: "◉ cut short" in screen_text(app))


async def test_two_traces_side_by_side_mark_the_first_difference(tmp_path: Path) -> None:
    first = record(tmp_path / "a.jsonl")
    with TraceWriter(tmp_path / "b.jsonl") as writer:
        for one in first:
            writer.write(wrong_from(one, 4))
    app = app_of(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    async with app.run_test(size=(160, 45)) as pilot:
        await opened(app, pilot)
        await pilot.press("3", "g")
        await pilot.pause(0.1)
        assert "≠" not in screen_text(app)
        assert "every token is that of a.jsonl" in screen_text(app)
        await pilot.press("n")
        await until(pilot, lambda: "≠" in screen_text(app))
        assert "differs from the row of a.jsonl, from round 4 on" in screen_text(app)
        await pilot.press("r")
        await until(pilot, lambda: "stays as it was" in said(app))
        await pilot.press("f")
        await until(pilot, lambda: isinstance(app.screen, FaultScreen))


@pytest.mark.parametrize("shared", [0, 2])
async def test_traces_of_other_prompts_are_not_compared_and_say_so(
    tmp_path: Path, shared: int
) -> None:
    made = record(tmp_path / "a.jsonl", prompts=synthetic.PROMPTS[:4])
    header = made[0]
    assert isinstance(header, RunHeader)
    others = [replace(prompt, ids=prompt.ids[::-1]) for prompt in header.prompts[shared:]]
    (tmp_path / "b").mkdir()
    with TraceWriter(tmp_path / "b" / "a.jsonl") as writer:
        writer.write(replace(header, prompts=(*header.prompts[:shared], *others)))
        for one in made[1:]:
            writer.write(one)
    app = app_of(tmp_path / "a.jsonl", tmp_path / "b" / "a.jsonl")
    control = app.control
    assert isinstance(control, RecordedControl)
    assert app.source.lane_names == (str(tmp_path / "a.jsonl"), str(tmp_path / "b" / "a.jsonl"))
    control.comparison.names = ("a.jsonl", "b/a.jsonl")
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await opened(app, pilot)
        await until(pilot, lambda: "the prompts differ" in said(app))
        await pilot.press("end")
        await pilot.pause(0.1)
        shown = screen_text(app)
        assert "EQSPEC  a.jsonl" in shown
        assert "EQSPEC  b/a.jsonl" in shown
        assert "right or wrong: there is no oracle" in shown
        assert "oracle's own" not in shown
        assert "exact" not in shown
        await pilot.press("d")
        await until(pilot, lambda: "tab goes to them" in said(app))
        await pilot.press("tab", "d")
        if shared:
            assert "only 2 rows have" in said(app)
            assert "rows 2, 3: not the prompt of" in shown
            assert "same 2/2" in shown
            await until(pilot, lambda: "No row of this lane differs from that of" in said(app))
        else:
            assert "nothing is compared" in shown
            await until(pilot, lambda: "Nothing is compared in this lane" in said(app))


def wrong_from(record: Record, number: int) -> Record:
    """The same record, with another last token in each row of round `number`."""
    if not isinstance(record, RoundRecord) or record.round != number:
        return record
    rows = tuple(
        replace(row, committed=(*row.committed[:-1], 1), bonus=1) if row.committed else row
        for row in record.rows
    )
    return replace(record, rows=rows)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"type":"header","schema":"batchspec/trace/9","method":"x"}\n', "newer version"),
        (b"something else\n", "not a trace"),
        (b"", "empty"),
        (b'{"type":"header"', "cut off in its first line"),
    ],
)
def test_what_cannot_be_opened_is_refused_before_the_screen(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "t.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=reason):
        RecordedSource([tmp_path / "t.jsonl"])


def test_a_newer_format_is_one_line_and_status_2(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"type":"header","schema":"batchspec/trace/7","method":"x"}\n')
    done = subprocess.run(
        [sys.executable, "-m", "tui", "replay", str(path)], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "batchspec/trace/7" in done.stderr


NO_TORCH = """
import asyncio, sys
from pathlib import Path
from tui.app.replay_app import RecordedSource, ReplayApp, recorded_control

async def main(paths):
    source = RecordedSource(paths)
    app = ReplayApp(recorded_control(source), source)
    async with app.run_test(size=(120, 35)) as pilot:
        while not app.control.state.ended:
            await pilot.pause(0.02)
        await pilot.press("n", "v", "end", "question_mark")

asyncio.run(main([Path(name) for name in sys.argv[1:]]))
heavy = {"torch", "transformers", "tokenizers", "numpy", "safetensors"} & set(sys.modules)
print("found", sorted(heavy))
"""


@pytest.mark.parametrize("count", [1, 2])
def test_it_needs_no_torch(tmp_path: Path, home: Path, count: int) -> None:
    record(tmp_path / "t.jsonl")
    paths = [str(tmp_path / "t.jsonl")] * count
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH, *paths], capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "found []\n", done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.zst"])
def test_a_killed_run_leaves_all_rounds_but_at_most_the_last(
    tmp_path: Path, home: Path, name: str
) -> None:
    path, shown = tmp_path / name, tmp_path / "shown"
    code = (
        "import sys; from engine.records.trace import TraceWriter; from tui.cli.main import main\n"
        "write = TraceWriter.write\n"
        "def note(self, record):\n"
        "    write(self, record)\n"
        "    open(sys.argv[1], 'a').write(str(getattr(record, 'round', 0)) + '\\n')\n"
        "TraceWriter.write = note\n"
        "main(sys.argv[2:])"
    )
    options = "run --model-pair toy --quiet --max-new-tokens 400 --prompt a --prompt b --trace"
    child = subprocess.Popen([sys.executable, "-c", code, str(shown), *options.split(), str(path)])
    try:
        end = time.monotonic() + 90
        while not shown.exists() or shown.read_text().count("\n") < 12:
            assert time.monotonic() < end, "no rounds"
            assert child.poll() is None, "ended before it was killed"
            time.sleep(0.01)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    last = int(shown.read_text().split()[-1])
    found = list(read_trace(path))
    assert isinstance(found[0], RunHeader)
    assert [one.round for one in found[1:] if isinstance(one, RoundRecord)][:last] == list(
        range(1, last + 1)
    )
    assert not isinstance(found[-1], Summary)


async def test_playing_stops_where_a_breakpoint_applies(tmp_path: Path, home: Path) -> None:
    record(tmp_path / "t.jsonl")
    app = app_of(tmp_path / "t.jsonl")
    app.breaking.give([parse_breakpoint("round=7")])
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await opened(app, pilot)
        await until(pilot, lambda: app.recorded.stops == [7])
        app.playhead.speed = None
        await pilot.press("space")
        await until(pilot, lambda: "◉ round=7" in screen_text(app))
        assert app.playhead.cursor == Cursor(7)
        await until(pilot, lambda: "round=7 in round 7" in said(app))
        await pilot.press("space")
        await until(pilot, lambda: app.playhead.cursor.round > 8)
        app.breaking.add("round=2")
        await until(pilot, lambda: 2 in app.recorded.stops)
        await pilot.press("2", "g")
        await until(pilot, lambda: "◉ round=2" in screen_text(app))


async def test_a_recorded_comparison_looks_as_it_did_live(tmp_path: Path, home: Path) -> None:
    request = AppRequest(
        pair=PairRequest(name="toy"),
        settings=Settings(batch_size=2, draft_tokens=3, max_new_tokens=12, device="cpu"),
        prompts=tuple(PromptEntry(text=text) for text in ("the river", "a small boat", "no")),
        trace=tmp_path / "run.jsonl",
    )
    control = Control(LiveSource(request), request.settings, paused=True)
    live = BatchspecApp(control)
    shown = []
    async with live.run_test(size=(160, 45)) as pilot:
        await until(pilot, lambda: isinstance(live.screen, MainScreen), 60)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(live.screen, CompareScreen))
        assert isinstance(control.beside, CompareControl)
        await pilot.press("space")
        await until(pilot, lambda: control.beside.state.ended, 60)  # type: ignore[union-attr]
        shown.append(await pictures(live, pilot))
    recorded = app_of(tmp_path / "run.compare.jsonl")
    async with recorded.run_test(size=(160, 45)) as pilot:
        await opened(recorded, pilot)
        recorded.control.speed = recorded.playhead.speed = None
        shown.append(await pictures(recorded, pilot))
    assert shown[0] == shown[1]


async def pictures(app: BatchspecApp, pilot: Pilot[int]) -> list[str]:
    """The screen as SVG at two cursors."""
    found = []
    for keys in (("4", "g"), ("comma",)):
        await pilot.press(*keys)
        await pilot.pause(0.3)
        found.append(app.export_screenshot(title="a"))
    return found
