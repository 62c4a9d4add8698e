"""Traces that older versions recorded are replayed to the pictures that those versions showed.

The name of a trace begins with the version of its format. The `.txt` beside it is what the
program of version 2 showed of it, at two of its rounds.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tui_app import screen_text
from tui.app.replay_app import RecordedSource, ReplayApp, recorded_control
from tui.screens.run import RunScreen

TRACES = sorted((Path(__file__).parent / "old_traces").glob("*.jsonl.zst"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
async def test_an_old_trace_shows_the_same_pictures(path: Path) -> None:
    shown = path.with_name(path.name.replace(".jsonl.zst", ".txt")).read_text(encoding="utf-8")
    expected = re.split(r"^== round (\d+)\n", shown, flags=re.MULTILINE)[1:]
    source = RecordedSource((path,))
    app = ReplayApp(recorded_control(source), source)
    async with app.run_test(size=(120, 35)) as pilot:
        while not (app.control.state.ended and isinstance(app.screen, RunScreen)):
            await pilot.pause(0.02)
        for number, picture in zip(expected[::2], expected[1::2], strict=True):
            app.playhead.jump(int(number), app.screen.last)
            app.screen.show_frame()
            await pilot.pause(0.05)
            lines = [line.rstrip() for line in screen_text(app).splitlines()]
            assert "\n".join(lines) == picture.rstrip("\n")
