"""The guided tour: each stop shows in its records what its text claims."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from engine.config.errors import UserError
from engine.config.settings import Settings
from engine.pairs.registry import PairRequest
from engine.records.row import RowRound
from engine.records.schema import RoundRecord, RunHeader, Summary
from tests.tour_claims import CLAIMS
from tests.tui_app import screen_text, until
from tui.app.app import BatchspecApp
from tui.cli.main import main
from tui.screens.compare import CompareScreen
from tui.session.control import Control
from tui.session.request import AppRequest
from tui.tour.guide import State
from tui.tour.panel import LINES, tour_body
from tui.tour.screen import StopsScreen, TourScreen
from tui.tour.source import LiveTour, recorded, tour_source
from tui.tour.stops import PROMPTS, STOPS
from tui.view.lines import plain

MOMENTS = [(stop.name, place) for stop in STOPS for place in range(len(stop.moments))]


def make_tour(pair: str = "toy", *, animate: bool = False) -> BatchspecApp:
    source = tour_source(AppRequest(pair=PairRequest(name=pair), tour=True))
    control = Control(source, STOPS[0].settings(Settings()), paused=True)
    app = BatchspecApp(control, tour=True)
    app.playhead.animate = animate
    return app


def screen_of(app: BatchspecApp) -> TourScreen:
    screen = app.screen
    assert isinstance(screen, TourScreen)
    return screen


async def arrived(pilot: Pilot[Any]) -> TourScreen:
    """Wait until the tour is at its stop."""
    app: Any = pilot.app
    await until(pilot, lambda: isinstance(app.screen, TourScreen), 60.0)
    screen = screen_of(app)
    await until(pilot, lambda: screen.guide.state is State.THERE, 60.0)
    await pilot.pause(0.1)
    return screen


def sound(screen: TourScreen, *, all_found: bool) -> None:
    """What is said at this stop is so, is on the screen, and fits."""
    guide = screen.guide
    shown = screen_text(screen.app)
    assert guide.now.title in shown
    assert guide.moment_now.look.split(":")[0][:40] in shown
    assert len(tour_body(guide, 0, 80)) < LINES
    assert screen.panel.at_stop
    assert "PgDn next" in shown
    if guide.scene is None:
        assert guide.missing
        assert not all_found or (guide.now.name, guide.moment) == ("exspec", 0)
        assert guide.moment_now.otherwise
        return
    assert screen.playhead.cursor == guide.scene.spot.cursor
    assert screen.selected == guide.scene.spot.row
    assert guide.scene.record.round == screen.playhead.cursor.round
    CLAIMS[guide.now.name, guide.moment](guide.scene)
    first = plain(guide.words()).split()[:2]
    assert " ".join(first) in " ".join(shown.split())


def test_every_moment_has_its_claim() -> None:
    assert set(CLAIMS) == set(MOMENTS)
    assert 8 <= len(STOPS) <= 10


def test_no_text_has_a_figure_of_its_own() -> None:
    for stop in STOPS:
        for moment in stop.moments:
            texts = (stop.title, moment.lead, moment.look, moment.otherwise)
            assert not any(character.isdigit() for text in texts for character in text), texts


@pytest.mark.parametrize("size", [(120, 35), (80, 24)])
async def test_a_walk_through_all_stops_on_the_live_engine(size: tuple[int, int]) -> None:
    app = make_tour()
    async with app.run_test(size=size) as pilot:
        seen = []
        for place in range(len(MOMENTS)):
            if place:
                await pilot.press("pagedown")
            screen = await arrived(pilot)
            sound(screen, all_found=True)
            assert " live " in screen_text(app)
            seen.append((screen.guide.now.name, screen.guide.moment))
        assert seen == MOMENTS
        await pilot.press("pagedown")
        await pilot.pause(0.1)
        assert screen.guide.is_last


@pytest.fixture
def no_weights(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.pairs.smollm2.installed_gguf", lambda: None)


@pytest.mark.parametrize("size", [(120, 35), (80, 24)])
async def test_without_weights_the_shipped_traces_tell_the_same(
    size: tuple[int, int], no_weights: None
) -> None:
    app = make_tour("smollm2")
    async with app.run_test(size=size) as pilot:
        for place in range(len(MOMENTS)):
            if place:
                await pilot.press("pagedown")
            screen = await arrived(pilot)
            assert screen.guide.scene is not None
            sound(screen, all_found=True)
            assert "recorded" in screen_text(app)
            if not place:
                assert "recorded: no weights are here" in screen_text(app)
        assert not screen.source.live
        for smaller in ((60, 20), (40, 12)):
            await pilot.resize_terminal(*smaller)
            await pilot.pause(0.1)
            assert "tour" in screen_text(app)


async def test_a_pair_that_cannot_be_loaded_is_no_end_of_the_tour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*unused: object) -> Iterator[None]:
        raise UserError("the models [/INST] are not to be had")

    monkeypatch.setattr(LiveTour, "_load", broken)
    app = make_tour()
    async with app.run_test(size=(120, 35)) as pilot:
        screen = await arrived(pilot)
        assert screen.source.why == "the models [/INST] are not to be had"
        assert "recorded: the models [/INST] are not to be had" in screen_text(app)
        sound(screen, all_found=True)


async def test_a_recorded_tour_refuses_what_needs_an_engine(no_weights: None) -> None:
    app = make_tour("smollm2")
    async with app.run_test(size=(120, 35)) as pilot:
        screen = await arrived(pilot)
        for key in ("b", "r", "right_square_bracket"):
            await pilot.press(key)
            await pilot.pause(0.1)
            assert app.screen is screen
        await pilot.press("f")  # the known mistakes can be read there all the same
        await until(pilot, lambda: app.screen is not screen)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen)
        sound(screen, all_found=True)


async def test_a_comparison_on_the_way() -> None:
    app = make_tour()
    async with app.run_test(size=(120, 35)) as pilot:
        screen = await arrived(pilot)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        await pilot.pause(0.3)
        await pilot.press("b")
        await until(pilot, lambda: app.screen is screen)
        await pilot.press("pagedown")
        sound(await arrived(pilot), all_found=True)


async def test_interventions_are_undone_by_coming_back() -> None:
    app = make_tour()
    async with app.run_test(size=(120, 35)) as pilot:
        await arrived(pilot)
        await pilot.press("pagedown")
        screen = await arrived(pilot)
        there = app.playhead.cursor
        before = app.control.timeline
        await pilot.press("end", "right_square_bracket", "n")
        await until(pilot, lambda: app.control.settings.draft_tokens == 6)
        await pilot.press("T")
        await until(pilot, lambda: app.control.timeline is not before)
        screen = await arrived(pilot)
        assert app.control.settings.draft_tokens == 5
        assert app.playhead.cursor == there
        sound(screen, all_found=True)


async def test_leave_and_come_back() -> None:
    app = make_tour()
    async with app.run_test(size=(120, 35)) as pilot:
        screen = await arrived(pilot)
        for _ in range(2):
            await pilot.press("pagedown")
            await arrived(pilot)
        there = app.playhead.cursor
        await pilot.press("T")
        await until(pilot, lambda: screen.panel.size.height == 1)
        assert "back to it" in screen_text(app)
        await pilot.press("m")
        await until(pilot, lambda: bool(app.screen.query(OptionList)))
        await pilot.press("home", "enter")
        await until(pilot, lambda: app.control.settings.method == "autoregressive")
        await until(pilot, lambda: app.control.timeline.last > 3)
        await pilot.press("space", "2", "p")
        await pilot.press("T")
        screen = await arrived(pilot)
        assert app.control.settings.method == "eqspec"
        assert app.playhead.cursor == there
        assert screen.panel.size.height > 1
        await pilot.press("n")
        await until(pilot, lambda: "back to the stop" in screen_text(app))
        await pilot.press("T")
        await until(pilot, lambda: app.playhead.cursor == there)


async def test_the_list_of_stops_and_back_again() -> None:
    app = make_tour()
    async with app.run_test(size=(80, 24)) as pilot:
        await arrived(pilot)
        await pilot.press("S")
        await until(pilot, lambda: isinstance(app.screen, StopsScreen))
        await pilot.pause(0.1)
        assert all(stop.title in screen_text(app) for stop in STOPS)
        await pilot.press("end", "enter")
        screen = await arrived(pilot)
        assert screen.guide.now is STOPS[-1]
        await pilot.press("pageup")
        screen = await arrived(pilot)
        assert screen.guide.now is STOPS[-2]
        assert screen.guide.moment == len(STOPS[-2].moments) - 1
        sound(screen, all_found=True)
        await pilot.press("ctrl+p", *"Stops")
        await until(pilot, lambda: "Another stop of the tour" in screen_text(app))
        await pilot.pause(0.3)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, StopsScreen))


async def test_the_way_to_a_stop_is_walked() -> None:
    app = make_tour(animate=True)
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, TourScreen), 60.0)
        screen = screen_of(app)
        seen = set()
        await until(pilot, lambda: app.control.timeline.last >= 1, 60.0)

        def there() -> bool:
            seen.add(app.playhead.cursor.round)
            return screen.guide.state is State.THERE

        await until(pilot, there, 30.0)
        assert {0, 1, 2, 3} <= seen
        sound(screen, all_found=True)


@pytest.mark.parametrize("stop", STOPS, ids=[stop.name for stop in STOPS])
def test_more_rounds_never_move_a_spot(stop: Any) -> None:
    from tui.view.state.timeline import Timeline

    timeline, found = Timeline(), {}
    right: dict[int, tuple[int, ...]] = {}
    for record in recorded("eqspec"):
        rows: tuple[RowRound, ...] = getattr(record, "rows", ())
        if isinstance(record, RoundRecord):
            for row in rows:
                right[row.row] = (*right.get(row.row, ()), *row.committed)
    for record in recorded(stop.method):
        timeline.add(record)
        if not isinstance(record, RoundRecord) or timeline.last < stop.rounds:
            continue
        for place, moment in enumerate(stop.moments):
            spot = moment.find(timeline, right)
            if spot is not None:
                assert found.setdefault(place, spot) == spot
    assert set(found) == set(range(len(stop.moments)))


def test_the_option_asks_for_the_tour(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[AppRequest] = []
    monkeypatch.setattr("tui.app.app.run_app", lambda request: asked.append(request) or 0)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit) as end:
        main(["--tour", "--model-pair", "toy"])
    assert end.value.code == 0
    assert [request.tour for request in asked] == [True]


def test_looking_for_weights_imports_no_torch() -> None:
    code = (
        "import sys; from tui.session.request import AppRequest; "
        "from tui.tour.source import tour_source; "
        "import tui.tour.screen; tour_source(AppRequest(tour=True)); "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_shipped_traces_are_small_and_whole() -> None:
    place = resources.files("tui.tour").joinpath("traces")
    files = {entry.name: len(entry.read_bytes()) for entry in place.iterdir()}
    assert set(files) == {f"{stop.method}.jsonl.zst" for stop in STOPS}
    assert sum(files.values()) < 1_000_000
    for stop in STOPS:
        first, *_, last = recorded(stop.method)
        assert isinstance(first, RunHeader)
        assert isinstance(last, Summary)
        assert first.method == stop.method
        assert [prompt.text for prompt in first.prompts] == [entry.text for entry in PROMPTS]
        ours = stop.settings(Settings())
        for name in ("batch_size", "draft_tokens", "window", "max_new_tokens"):
            assert first.settings[name] == getattr(ours, name)
