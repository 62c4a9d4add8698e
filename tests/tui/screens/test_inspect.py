"""The inspector's page: how a row's tokens were verified, where they lie, what moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from textual.pilot import Pilot

from engine.config.methods import METHODS
from engine.config.settings import Sampling
from engine.records.schema import RoundRecord
from engine.runs.run import Run
from tests.cases import PROMPTS, settings_of
from tests.tiny import tiny_pair
from tests.tui_app import MadeUp, make_app, ready, screen_text, until
from tui.screens.inspect import InspectScreen
from tui.screens.main import MainScreen
from tui.view.batch.tensor import tensor_view
from tui.view.lines import plain, width_of
from tui.view.panes.inspect import inspect_lines
from tui.view.state.closeup import close_up, title
from tui.view.state.cursor import LAST, Cursor, Phase
from tui.view.state.frame import Frame
from tui.view.state.origin import origin_of
from tui.view.state.timeline import Timeline

PAIR = tiny_pair()


def timeline_of(method: str, **other: Any) -> Timeline:
    job = Run(PAIR, settings_of(method, inspect=True, **other), PROMPTS)
    timeline = Timeline()
    for record in job.records():
        timeline.add(record)  # type: ignore[arg-type]
    return timeline


def page(timeline: Timeline, number: int, row: int, phase: Phase = LAST, width: int = 118) -> str:
    frame = Frame(timeline=timeline, cursor=Cursor(number, phase), selected=row)
    look = close_up(frame, None)
    assert look is not None
    return "\n".join(plain(line).rstrip() for line in [title(look), *inspect_lines(look, width)])


def every_row(timeline: Timeline) -> Iterator[tuple[int, int, RoundRecord]]:
    for number, record in enumerate(timeline.rounds, start=1):
        for entry in record.rows:
            yield number, entry.row, record


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("width", [118, 78, 38])
def test_every_row_of_every_round_has_a_page_that_fits(method: str, width: int) -> None:
    timeline = timeline_of(method)
    for number, row, _ in every_row(timeline):
        for phase in Phase:
            frame = Frame(timeline=timeline, cursor=Cursor(number, phase), selected=row)
            look = close_up(frame, None)
            assert look is not None
            for line in inspect_lines(look, width):
                assert width_of(line) <= width


def test_greedy_words() -> None:
    timeline = timeline_of("eqspec")
    number, row, record = next(
        (number, row, record)
        for number, row, record in every_row(timeline)
        for entry in record.rows
        if entry.row == row and 0 < entry.accepted < len(entry.draft_token_ids) and entry.delta
    )
    entry = next(entry for entry in record.rows if entry.row == row)
    shown = page(timeline, number, row)
    assert f"row {row}  round {number}  EQSPEC" in shown
    assert shown.count("the target's best: accepted") == entry.accepted
    assert "not its best: rejected" in shown
    assert f"{entry.tests[0].draft_prob:.3f}  {entry.tests[0].target_prob:.3f}" in shown
    assert f"δ = {entry.delta:+d}: columns" in shown
    assert f"{entry.kv_length} slots hold committed tokens" in shown
    before = page(timeline, number, row, Phase.DRAFT)
    assert "not verified yet" in before
    assert "★" not in before
    assert "after the round" not in before


def test_sampled_words() -> None:
    timeline = timeline_of("slotspec", sampling=Sampling(temperature=0.9, seed=1))
    pages = "\n".join(page(timeline, number, row) for number, row, _ in every_row(timeline))
    assert "< p: accepted" in pages
    assert "≥ p: rejected" in pages
    assert "max(p−q,0): 0." in pages
    assert "drawn from p, u 0." in pages
    assert "a slot never moves" in pages
    assert "stale" in pages


@pytest.mark.parametrize("method", METHODS)
def test_every_token_knows_its_round(method: str) -> None:
    timeline = timeline_of(method)
    last = timeline.last
    for row, track in timeline.tracks.items():
        for place in range(track.length_at(last)):
            origin = origin_of(timeline, row, place, last)
            assert origin is not None
            assert origin.token == track.tokens[place]
            assert (origin.number == 0) == (place < track.prompt_length)
            if origin.row is not None:
                assert origin.row.committed[origin.offset] == origin.token
    assert origin_of(timeline, 0, 10_000, last) is None


def test_a_row_that_waits_shows_its_last_round() -> None:
    timeline = timeline_of("exspec")
    number, row = next(
        (number, waiting.row)
        for number, record in enumerate(timeline.rounds, start=1)
        for waiting in record.pool
        if timeline.tracks[waiting.row].count_at(number)
    )
    assert f"the row takes no part in round {number}" in page(timeline, number, row)


async def inspector(pilot: Pilot[Any]) -> InspectScreen:
    await until(pilot, lambda: isinstance(pilot.app.screen, InspectScreen))
    await pilot.pause(0.15)
    screen = pilot.app.screen
    assert isinstance(screen, InspectScreen)
    return screen


@pytest.mark.parametrize("size", [(120, 35), (80, 24), (40, 12)])
async def test_the_inspector_by_its_keys(size: tuple[int, int]) -> None:
    app = make_app(paused=True)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await pilot.press("6", "n")
        await until(pilot, lambda: app.playhead.cursor == Cursor(6))
        await pilot.press("enter")
        await inspector(pilot)
        assert "row 0  round 6" in screen_text(app)
        await pilot.press("p", "down")
        await pilot.pause(0.2)
        assert app.playhead.cursor == Cursor(5)
        assert "row 1  round 5" in screen_text(app)
        await pilot.press("left", "left", "right", "comma")
        await pilot.pause(0.2)
        assert app.playhead.cursor == Cursor(5, Phase.ACCEPT)
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)


async def test_a_click_on_a_token_of_the_selected_row_opens_it() -> None:
    app = make_app(MadeUp(ends=0.0), paused=True)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        await pilot.press("4", "n")
        await until(pilot, lambda: app.playhead.cursor == Cursor(4))
        await pilot.pause(0.2)
        shown = screen_text(app).splitlines()
        y, line = next((y, line) for y, line in enumerate(shown) if "▸ 0" in line)
        await pilot.click(offset=(line.index("★") + 1, y))
        screen = await inspector(pilot)
        assert screen.pane.look is not None
        track = app.control.timeline.tracks[0]
        assert screen.pane.look.origin is not None
        assert screen.pane.look.origin.place == track.length_at(4) - 1
        assert "the target's own" in screen_text(app)


@pytest.mark.parametrize("fault", ["", "kv-not-realigned"])
def test_what_is_said_to_be_moved_was_moved(fault: str) -> None:
    timeline = timeline_of("eqspec", fault=fault)
    ghosts = 0
    for number, row, record in every_row(timeline):
        entry = next(entry for entry in record.rows if entry.row == row)
        shown = page(timeline, number, row)
        if entry.delta and not entry.finish_reason:
            assert "δ = " in shown
            assert not (fault and "read and written" in shown)
            assert ("the K/V were left where they are" in shown) == bool(fault)
        if fault and not record.left:
            assert record.realign_bytes == 0
        held = sum(span.length for span in entry.kept if span.kind == "ghost")
        ghosts += held
        assert ("slots hold committed tokens" in shown) == (not held)
        if held:
            counts = "all" if held >= entry.kv_length else str(held)
            assert f"as the row's, {counts} of them ghosts" in shown
    assert bool(ghosts) == bool(fault)


@pytest.mark.parametrize("fault", ["", "bonus-from-draft"])
def test_the_headline_and_the_table_agree_on_whose_the_bonus_is(fault: str) -> None:
    timeline = timeline_of("eqspec", fault=fault)
    wrong = 0
    for number, row, record in every_row(timeline):
        entry = next(entry for entry in record.rows if entry.row == row)
        if len(entry.committed) <= entry.accepted:
            continue  # it ended before a bonus
        shown = page(timeline, number, row)
        taken = entry.draft_token_ids[entry.accepted : entry.accepted + 1] == (entry.bonus,)
        wrong += taken
        place = f"draft token {entry.accepted + 1} of {len(entry.draft_token_ids)}"
        assert (f"{place}, rejected, and taken all the same" in shown) == taken
        assert ("not the target's best" in shown) == taken
        assert (": the target's own" in shown) == (not taken)
    assert bool(wrong) == bool(fault)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_without_a_cache_has_none_in_any_phase(method: str) -> None:
    timeline = timeline_of(method)
    for number, row, _ in every_row(timeline):
        for phase in Phase:
            frame = Frame(timeline=timeline, cursor=Cursor(number, phase), selected=row)
            shown = next(entry for entry in tensor_view(frame).rows if entry.row == row)
            assert (shown.kv_length == 0) == (method == "dsd")
            if method == "dsd":
                assert not any(segment.cached for segment in shown.segments)
                assert "valid" not in page(timeline, number, row, phase)


@pytest.mark.parametrize("method", ["eqspec", "rollback", "slotspec", "dsd"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("width", [75, 118])  # 75: what a screen of 80 columns leaves
def test_no_word_is_cut_off(method: str, temperature: float, width: int) -> None:
    if temperature and method == "dsd":
        pytest.skip("greedy only")
    timeline = timeline_of(method, sampling=Sampling(temperature=temperature, seed=1))
    for number, row, _ in every_row(timeline):
        for phase in Phase:
            shown = page(timeline, number, row, phase, width)
            assert "…" not in re.sub(r"\d…\d", "", shown), shown


@pytest.mark.parametrize("key", ["none", "n"])
async def test_a_row_that_waits_for_its_turn_has_a_name(key: str) -> None:
    app = make_app(MadeUp(max_new_tokens=40), batch_size=2, paused=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        if key == "n":
            await pilot.press("n")
            await until(pilot, lambda: app.playhead.cursor == Cursor(1))
        waiting = max(app.control.timeline.tracks)
        screen = app.screen
        assert isinstance(screen, MainScreen)
        screen.selected = waiting
        await pilot.press("enter")
        screen_now = await inspector(pilot)
        await until(pilot, lambda: f"row {waiting}  round {int(key == 'n')}" in screen_text(app))
        assert screen_now.pane.look is None
        words = "not begun by round 1" if key == "n" else "no round has been made yet"
        assert words in screen_text(app)
