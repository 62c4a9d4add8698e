"""The comparison on the screen: what each lane says, and its keys."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from engine.config.settings import Settings
from engine.evaluation.compare import Compare
from engine.pairs.registry import PairRequest
from engine.records.schema import Record, TickRecord
from engine.records.trace import read_trace
from engine.runs.worker import State
from engine.text.prompts import PromptEntry
from tests.tiny import mixed_prompts, tiny_pair
from tests.tui_app import MadeUp, make_app, ready, screen_text, until
from tui.app.app import BatchspecApp
from tui.screens.compare import CompareScreen
from tui.screens.main import MainScreen
from tui.session.compare import CompareControl
from tui.session.control import Control
from tui.session.live import LiveSource
from tui.session.request import AppRequest
from tui.view.batch.cells import Kind, Segment
from tui.view.batch.lane import lane_rows, lane_shape, mark, row_lines
from tui.view.lines import plain, width_of
from tui.view.panes.verdict import rates, verdict_lines
from tui.view.sentences import row_divergence_words
from tui.view.state.compare import Comparison, lane_frame
from tui.view.state.cursor import LAST, Cursor, Phase

PROMPTS = mixed_prompts(5, seed=3)
SIZES = [(160, 45), (120, 35), (80, 24), (60, 60), (40, 12)]


def comparison_of(*methods: str, tokens: int = 16) -> tuple[Comparison, list[Record]]:
    settings = [
        Settings(method=method, batch_size=3, draft_tokens=3, max_new_tokens=tokens)
        for method in methods
    ]
    records = list(Compare(tiny_pair(), settings, PROMPTS).records())
    comparison = Comparison()
    for record in records:
        comparison.add(record)
    return comparison, records


@pytest.fixture(scope="module")
def four() -> Comparison:
    return comparison_of("eqspec", "exspec", "bsp", "dsd")[0]


class TestMatch:
    """Where a row leaves the oracle, and the sentence for it."""

    def test_correct_methods_agree_at_every_tick(self, four: Comparison) -> None:
        for tick in range(four.last + 1):
            for lane in (0, 1):
                exact, total, share = rates(lane_frame(four, lane, Cursor(tick)))
                assert exact == total
                assert share == 1.0

    def test_the_first_wrong_token_is_the_first(self, four: Comparison) -> None:
        for lane in (2, 3):
            timeline, match = four.take(lane)
            assert match.divergences, "the baselines diverge"
            for row, entry in match.divergences.items():
                found = entry.divergence
                output = timeline.tracks[row].tokens[timeline.tracks[row].prompt_length :]
                answer = four.oracle.answers[row].output
                assert output[: found.position] == answer[: found.position]
                if found.got is not None and found.expected is not None:
                    assert output[found.position] == found.got
                    assert answer[found.position] == found.expected

    def test_a_row_is_right_until_the_tick_in_which_it_errs(self, four: Comparison) -> None:
        match = four.take(2).match
        row, entry = min(match.divergences.items(), key=lambda entry: entry[1].round)
        assert match.divergence_at(row, entry.round - 1) is None
        assert match.divergence_at(row, entry.round) == entry
        before = rates(lane_frame(four, 2, Cursor(entry.round - 1)))
        after = rates(lane_frame(four, 2, Cursor(entry.round)))
        assert before[0] == before[1]
        assert after[0] < after[1]
        assert after[2] < 1.0

    def test_tokens_of_a_round_count_when_they_are_committed(self, four: Comparison) -> None:
        match = four.take(2).match
        first = min(entry.round for entry in match.divergences.values())
        drafted = lane_frame(four, 2, Cursor(first, Phase.DRAFT))
        assert rates(drafted)[0] == rates(drafted)[1]

    def test_the_cause_is_a_plain_sentence(self, four: Comparison) -> None:
        words = [
            row_divergence_words(entry, four.oracle.tolerance)
            for entry in four.take(2).match.divergences.values()
        ]
        assert any("skipped, since round" in one for one in words), words
        look = lane_frame(four, 2, Cursor(four.last))
        shown = "\n".join(plain(line) for line in verdict_lines(look, 78, 12))
        assert "row " in shown
        assert "since round" in shown
        assert "I2✗" in shown

    def test_it_does_not_matter_when_the_oracle_speaks(self) -> None:
        _, records = comparison_of("eqspec", "bsp")
        late, early = Comparison(), Comparison()
        from engine.records.schema import OracleRecord, RunHeader

        of_oracle = [r for r in records if isinstance(r, OracleRecord)]
        others = [r for r in records if not isinstance(r, OracleRecord)]
        heads = [r for r in others if isinstance(r, RunHeader)]
        for record in (*others, *of_oracle):
            late.add(record)
        for record in (*heads, *of_oracle, *[r for r in others if r not in heads]):
            early.add(record)
        for lane in (0, 1):
            assert late.take(lane).match.divergences == early.take(lane).match.divergences


class TestView:
    """Lanes as functions of the records and the cursor."""

    def test_all_panes_follow_the_cursor_whatever_came_after(self) -> None:
        comparison, records = comparison_of("eqspec", "exspec", "bsp", "dsd")
        so_far = Comparison()
        ticks = 0
        for record in records:
            so_far.add(record)
            if isinstance(record, TickRecord) and record.tick:
                ticks += 1
                for lane in range(4):
                    now = lane_text(so_far, lane, ticks)
                    later = lane_text(comparison, lane, ticks)
                    assert now == later, (lane, ticks)

    @pytest.mark.parametrize("phase", list(Phase))
    @pytest.mark.parametrize("width", [30, 48, 59, 79, 120])
    def test_lines_are_as_wide_as_the_lane(
        self, four: Comparison, width: int, phase: Phase
    ) -> None:
        for tick in (0, 1, 4, four.last):
            for lane in range(4):
                look = lane_frame(four, lane, Cursor(tick, phase))
                view = lane_rows(look, 6, width)
                shape = lane_shape(view, width, None)
                for row in view.rows:
                    for each in (1, 2, 3):
                        lines = row_lines(look, view, row, shape, each)
                        assert len(lines) == each
                        assert all(width_of(line) == width for line in lines)
                assert all(width_of(line) == width for line in verdict_lines(look, width, 5))

    def test_the_first_wrong_token_is_marked_in_cells_and_text(self, four: Comparison) -> None:
        shown = lane_text(four, 2, four.last)
        assert "≠" in shown
        assert "‹" in shown
        assert "≠" not in lane_text(four, 0, four.last)

    def test_marking_splits_a_segment(self) -> None:
        whole = [Segment(4, 5, Kind.COMMITTED, 10, (), 10, True, True)]
        parts = mark(whole, 12)
        assert [(p.start, p.length, p.kind, p.first, p.position) for p in parts] == [
            (4, 2, Kind.COMMITTED, 10, 10),
            (6, 1, Kind.DIVERGED, 12, 12),
            (7, 2, Kind.COMMITTED, 13, 13),
        ]
        assert mark(whole, 3) == whole

    def test_a_pool_shows_the_rows_that_the_others_have(self, four: Comparison) -> None:
        for tick in range(1, four.last):
            looks = [lane_frame(four, lane, Cursor(tick)) for lane in range(4)]
            record = looks[1].frame.record
            if record is None or looks[1].frame.cursor.round == four.take(1).timeline.last:
                continue
            shown = [row.row for row in lane_rows(looks[1]).rows]
            assert shown == sorted(shown)
            assert set(looks[1].shared) <= set(shown)


def lane_text(comparison: Comparison, lane: int, tick: int) -> str:
    look = lane_frame(comparison, lane, Cursor(tick, LAST))
    view = lane_rows(look, 6, 79)
    shape = lane_shape(view, 79, None)
    lines = [line for row in view.rows for line in row_lines(look, view, row, shape, 3)]
    return "\n".join(plain(line) for line in [*lines, *verdict_lines(look, 79, 8)])


def toy_app(
    *,
    prompts: int = 4,
    tokens: int = 24,
    paused: bool = False,
    trace: Path | None = None,
    **more: Any,
) -> BatchspecApp:
    settings = Settings(batch_size=2, draft_tokens=3, max_new_tokens=tokens, threads=1, **more)
    request = AppRequest(
        pair=PairRequest(name="toy"),
        settings=settings,
        prompts=tuple(PromptEntry(text=f"the river {'stone ' * n}") for n in range(prompts)),
        trace=trace,
    )
    return BatchspecApp(Control(LiveSource(request), settings, paused=paused))


async def compared(pilot: Pilot[Any], app: BatchspecApp, ticks: int = 0) -> CompareControl:
    """Wait for the comparison and so many ticks."""
    await until(pilot, lambda: isinstance(app.screen, CompareScreen), 60.0)
    control = app.control.beside
    assert isinstance(control, CompareControl)
    await until(pilot, lambda: control.comparison.complete, 60.0)
    await until(pilot, lambda: control.comparison.last >= ticks, 60.0)
    await pilot.pause(0.1)
    return control


async def test_b_compares_and_goes_back() -> None:
    app = toy_app(tokens=120)
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.control.timeline.last >= 2, 60.0)
        await pilot.press("b")
        control = await compared(pilot, app, 3)
        held = app.control.timeline.last
        shown = screen_text(app)
        for name in ("EQSPEC", "EXSPEC", "BSP", "DSD", "COMPARE", "exact", "match"):
            assert name in shown
        await until(pilot, lambda: control.comparison.last >= 6, 60.0)
        assert app.control.timeline.last <= held + 1, "the single run holds"
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, MainScreen))
        await until(pilot, lambda: app.control.timeline.last > held + 1, 60.0)
        await until(pilot, lambda: control.state is State.PAUSED or control.state.ended)
        done = control.comparison.last
        await pilot.press("b")
        again = await compared(pilot, app, done)
        assert again is control, "it is as it was left"


async def test_stepping_by_keys() -> None:
    app = toy_app(paused=True)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        await pilot.press("b")
        control = await compared(pilot, app)
        assert control.comparison.last == 0
        assert "before round 1" in screen_text(app)
        await pilot.press("3", "n")
        await until(pilot, lambda: len(control.comparison.ticks) == 3, 60.0)
        await until(pilot, lambda: control.playhead.cursor == Cursor(3), 10.0)
        await until(pilot, lambda: not control.playhead.animating)
        await pilot.pause(0.2)
        third = screen_text(app)
        await pilot.press("2", "p")
        assert control.playhead.cursor == Cursor(1)
        assert "step 1 of 3" in screen_text(app)
        await pilot.press("comma", "full_stop")
        assert control.playhead.cursor == Cursor(1)
        await pilot.press("end")
        await pilot.pause(0.2)
        assert screen_text(app) == third


async def test_lanes_methods_and_pace() -> None:
    app = toy_app(paused=True)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        await pilot.press("b")
        control = await compared(pilot, app)
        await pilot.press("2", "n")
        await until(pilot, lambda: len(control.comparison.ticks) == 2, 60.0)
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        await pilot.press("tab", "tab")
        assert screen.focus_lane == 2
        await pilot.press("m")
        await pilot.pause(0.2)
        await pilot.press("up", "up", "enter")  # from bsp to slotspec
        await pilot.press("n")
        await until(pilot, lambda: len(control.comparison.ticks) == 3, 60.0)
        await pilot.pause(0.3)
        assert "SLOTSPEC  round 3" in screen_text(app)
        await pilot.press("p")
        await pilot.pause(0.1)
        assert "BSP  round 2" in screen_text(app), "the past is what it was"
        for pace, words in (("tokens", "by tokens"), ("time", "by time"), ("round", "by rounds")):
            await pilot.press("end", "s")
            await until(pilot, lambda wanted=pace: control.lanes.pace == wanted)
            await pilot.pause(0.1)
            assert words in screen_text(app)


async def test_to_where_a_row_diverges() -> None:
    app = toy_app()
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.control.timeline.last >= 1, 60.0)
        await pilot.press("b")
        control = await compared(pilot, app)
        await until(pilot, lambda: control.state is State.FINISHED, 90.0)
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        await pilot.press("tab", "tab", "d")  # the third lane is bsp
        divergences = control.comparison.divergences(2)
        assert len(divergences) > 1
        assert (control.playhead.cursor.round, screen.selected) == divergences[0]
        await pilot.pause(0.1)
        assert "≠" in screen_text(app)
        await pilot.press("p")
        await pilot.press("d", "d")
        assert (control.playhead.cursor.round, screen.selected) == divergences[1]
        await pilot.press("D")
        assert (control.playhead.cursor.round, screen.selected) == divergences[0]
        held = control.playhead.cursor
        await pilot.press("tab", "tab", "d")  # eqspec: no row does
        assert control.playhead.cursor == held


@pytest.mark.parametrize("size", SIZES)
async def test_compare_at_every_size(size: tuple[int, int]) -> None:
    app = toy_app(tokens=16)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.control.timeline.last >= 1, 60.0)
        await pilot.press("b")
        control = await compared(pilot, app, 3)
        await until(pilot, lambda: control.state is State.FINISHED, 90.0)
        for key in ("v", "v", "v", "v", "minus", "plus", "plus", "left", "right", "down", "up"):
            await pilot.press(key)
        for _ in range(4):
            await pilot.press("tab")
            await pilot.pause(0.05)
            assert "exact" in screen_text(app) or size[1] < 15
        await pilot.press("home", "n", "full_stop", "comma", "end")
        await pilot.resize_terminal(100, 30)
        await pilot.pause(0.1)
        await pilot.resize_terminal(*size)
        await pilot.pause(0.1)
        assert "COMPARE" in screen_text(app) or size[0] < 60


async def test_a_comparison_is_recorded_beside_the_run(tmp_path: Path) -> None:
    app = toy_app(tokens=10, prompts=2, trace=tmp_path / "run.jsonl")
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.control.timeline.last >= 1, 60.0)
        await pilot.press("b")
        control = await compared(pilot, app)
        await until(pilot, lambda: control.state is State.FINISHED, 90.0)
        recorded = Comparison()
        for record in read_trace(tmp_path / "run.compare.jsonl"):
            recorded.add(record)
        assert recorded.last == control.comparison.last
        for lane in range(4):
            assert lane_text(recorded, lane, recorded.last) == lane_text(
                control.comparison, lane, recorded.last
            )


async def test_what_cannot_be_compared_says_so() -> None:
    app = make_app(MadeUp(delay=0.01))
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await ready(pilot, 2)
        await pilot.press("space", "b")
        await until(pilot, lambda: "nothing to be" in screen_text(app))
        assert isinstance(app.screen, MainScreen)


async def test_a_run_and_a_comparison_that_are_left_and_resumed_quickly_never_meet() -> None:
    """Both threads may still be in a round when the other one is resumed."""
    settings = Settings(batch_size=2, max_new_tokens=60, dtype="float32", threads=1)
    entries = tuple(PromptEntry(text=text) for text in ("the river", "a cold stone", "old book"))
    request = AppRequest(
        pair=PairRequest(name="toy"), settings=settings, prompts=entries, chat=False
    )
    source = LiveSource(request)
    app = BatchspecApp(Control(source, settings))
    inside: list[int] = []
    clashes: list[int] = []

    def guard(model: Any) -> None:
        forward = model.forward

        def guarded(*given: Any, **named: Any) -> Any:
            clashes.extend(inside)
            inside.append(1)
            time.sleep(0.02)  # as slow as a larger model
            try:
                return forward(*given, **named)
            finally:
                inside.pop()

        model.forward = guarded

    async with app.run_test(size=(140, 35)) as pilot:
        await ready(pilot)
        assert source._pair is not None
        assert source._pair.draft is not None
        guard(source._pair.target)
        guard(source._pair.draft)
        for _ in range(4):
            await pilot.press("b")
            await pilot.pause(0.3)
        assert isinstance(app.screen, MainScreen)
        compared = app.control.beside
        assert compared is not None
        compared.worker.run()  # whoever resumes what: now both run at once
        app.control.worker.run()
        done = len(compared.worker.history)
        await until(pilot, lambda: app.control.timeline.last > 6, 30)
        await until(pilot, lambda: len(compared.worker.history) > done, 30)
        for control in (app.control, compared):
            assert control.worker.state is not State.FAILED
        assert app.control.stop(10.0)
    assert not clashes
