"""What is recorded stays: each run of a start of the app has a file of its own."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

import engine.pairs.load  # noqa: F401 - once, before the clock of a test runs
from engine.microscope.breakpoints import parse_breakpoint
from engine.records.schema import ChangeRecord, Record, RoundRecord, RunHeader, Summary, TickRecord
from engine.records.trace import TraceWriter, read_trace
from engine.runs.worker import State
from tests import synthetic
from tests.tui.app.test_replay import app_of, opened
from tests.tui.screens.test_change import toy_app
from tests.tui_app import ready, screen_text, until
from tui.session.live import LiveSource
from tui.session.recorded_breakpoints import Findings
from tui.session.recording import Recording


def made(method: str = "eqspec") -> list[Record]:
    return list(synthetic.records(method, max_new_tokens=30))


def test_a_run_that_begins_again_has_a_file_of_its_own(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run.jsonl.zst")
    first, second = made("eqspec"), made("exspec")
    assert list(recording.of_run(iter(first[:-2]))) == first[:-2]
    assert list(recording.of_run(iter(first[-2:]), goes_on=True)) == first[-2:]
    assert list(recording.of_run(iter(second))) == second
    for _ in range(2):
        list(recording.beside("fork", iter(first)))
    assert [path.name for path in recording.written] == [
        "run.jsonl.zst",
        "run.2.jsonl.zst",
        "run.fork.jsonl.zst",
        "run.fork.2.jsonl.zst",
    ]
    assert list(read_trace(recording.written[0])) == first
    assert list(read_trace(recording.written[1])) == second


async def test_restart_and_a_prompt_after_the_end(tmp_path: Path) -> None:
    app = toy_app(tmp_path / "run.jsonl", max_new_tokens=6)
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("space")
        await until(pilot, lambda: app.control.state is State.FINISHED, 30)
        timeline = app.control.timeline
        rounds = timeline.last
        await pilot.press("e")
        await pilot.pause(0.1)
        assert "goes on with it" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause(0.1)
        await pilot.press(*"one more", "enter")
        await until(pilot, lambda: timeline.last > rounds, 30)
        await until(pilot, lambda: app.control.state is State.FINISHED, 30)
        assert app.control.timeline is timeline
        assert timeline.tracks[4].finished_at(timeline.last)
        await pilot.press("r")
        await until(pilot, lambda: app.control.timeline is not timeline)
        await until(pilot, lambda: app.control.state is State.FINISHED, 30)
    source = app.control.source
    assert isinstance(source, LiveSource)
    assert [path.name for path in source.recording.written] == ["run.jsonl", "run.2.jsonl"]
    kinds = [type(record) for record in read_trace(tmp_path / "run.jsonl")]
    assert kinds.count(Summary) == 2
    assert kinds[-1] is Summary
    assert kinds.count(ChangeRecord) == 1
    assert kinds.count(RoundRecord) == timeline.last
    again = next(read_trace(tmp_path / "run.2.jsonl"))
    assert isinstance(again, RunHeader)
    assert len(again.prompts) == 5, "the prompt that joined stays"


async def test_a_replay_says_that_it_is_one(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t.jsonl") as writer:
        for record in made():
            writer.write(record)
    app = app_of(tmp_path / "t.jsonl")
    async with app.run_test(size=(120, 35)) as pilot:
        await opened(app, pilot)
        await until(pilot, lambda: "· replay" in screen_text(app))
        assert "finished" not in screen_text(app)


def test_breakpoints_of_a_recorded_comparison_lie_in_its_ticks() -> None:
    """The second lane goes two rounds in a tick."""
    first, second = made("eqspec"), made("exspec")
    rounds = [r for r in first if isinstance(r, RoundRecord)]
    twice = [r for r in second if isinstance(r, RoundRecord)]
    headers = [r for r in (first[0], second[0]) if isinstance(r, RunHeader)]
    stream: list[Record] = [replace(h, lane=n, lanes=2) for n, h in enumerate(headers)]
    for tick in range(4):
        stream.append(replace(rounds[tick], lane=0))
        stream += [replace(one, lane=1) for one in twice[2 * tick : 2 * tick + 2]]
        stream.append(TickRecord(tick=tick + 1, rounds={0: tick + 1, 1: 2 * tick + 2}))
    findings = Findings(lambda: stream)
    point = parse_breakpoint("round=5")
    findings._points = (point,)
    findings._look((point,))
    assert findings.rounds == [3]
    assert [(hit.lane, hit.round) for hit in findings.at(3)] == [(1, 5)]


async def test_to_where_an_invariant_breaks(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t.jsonl") as writer:
        for record in made("bsp"):
            writer.write(record)
    app = app_of(tmp_path / "t.jsonl")
    async with app.run_test(size=(120, 35)) as pilot:
        await opened(app, pilot)
        breaks = sorted({number for number, _ in app.control.timeline.breaks})
        assert breaks
        await pilot.press("home")
        seen = [app.playhead.cursor.round]
        for _ in breaks:
            await pilot.press("i")
            seen.append(app.playhead.cursor.round)
        assert [number for number in breaks if number > 1] == sorted(set(seen) - {1})
        await pilot.press("9", "I")
        assert app.playhead.cursor.round == breaks[0]
