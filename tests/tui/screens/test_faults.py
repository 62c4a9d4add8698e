"""The fault lab on the screen: switched on and off as the run goes, and the past stays."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from engine.config.faults import FAULTS
from engine.config.settings import Settings
from engine.pairs.registry import PairRequest
from engine.records.row import RowRound
from engine.records.schema import Prompt
from engine.runs.worker import State
from engine.text.prompts import PromptEntry
from tests.tui_app import screen_text, until
from tui.app.app import BatchspecApp
from tui.screens.faults import FaultScreen, fault_lines
from tui.screens.main import MainScreen
from tui.session.control import Control
from tui.session.live import LiveSource
from tui.session.request import AppRequest
from tui.view.lines import plain, width_of
from tui.view.panes.status import alarm_pieces
from tui.view.state.frame import Frame
from tui.view.state.track import RowTrack

NAMES = list(FAULTS)


class TestRowTrack:
    """A row that goes back: what was seen before can still be seen."""

    def track(self) -> RowTrack:
        track = RowTrack(Prompt(index=0, ids=(1, 2)))
        track.add(1, RowRound(row=0, before=2, committed=(3, 4), text="ab", accepted=1))
        track.add(2, RowRound(row=0, before=4, committed=(5,), text="c", finish_reason="eos"))
        track.go_back(3, 4)
        track.add(3, RowRound(row=0, before=4, committed=(6, 7), text="xy", accepted=1))
        return track

    def test_tokens_are_those_that_the_round_saw(self) -> None:
        track = self.track()
        assert track.tokens_at(2)[: track.length_at(2)] == [1, 2, 3, 4, 5]
        assert track.tokens_at(3)[: track.length_at(3)] == [1, 2, 3, 4, 6, 7]
        assert track.tokens == [1, 2, 3, 4, 6, 7]

    def test_text_is_that_of_the_round(self) -> None:
        track = self.track()
        assert track.text_at(2) == ("ab", "c")
        assert track.text_at(3) == ("ab", "xy")
        assert track.text_at(1) == ("", "ab")

    def test_it_runs_again(self) -> None:
        track = self.track()
        assert [track.finished_at(number) for number in range(4)] == [False, False, True, False]

    def test_going_back_is_no_round_of_its_own(self) -> None:
        assert self.track().mean_accepted_at(3) == pytest.approx(2 / 3)

    def test_a_row_goes_back_to_its_prompt(self) -> None:
        track = self.track()
        track.go_back(4, 2)
        assert track.length_at(4) == 2
        assert track.text_at(4) == ("", "")
        assert track.text_at(3) == ("ab", "xy")


@pytest.mark.parametrize("width", [30, 60, 110])
@pytest.mark.parametrize("name", NAMES)
def test_each_fault_is_explained(name: str, width: int) -> None:
    lines = fault_lines(FAULTS[name], False, True, width)
    assert all(width_of(line) <= width for line in lines)
    shown = " ".join(plain(line) for line in lines)
    assert FAULTS[name].title in shown
    for invariant in FAULTS[name].breaks:
        assert invariant in shown
    for report in FAULTS[name].reports:
        assert str(report.number) in shown


def toy_app(*, tokens: int = 60, **settings: Any) -> BatchspecApp:
    chosen = Settings(batch_size=3, draft_tokens=3, max_new_tokens=tokens, threads=1, **settings)
    request = AppRequest(
        pair=PairRequest(name="toy"),
        settings=chosen,
        prompts=tuple(PromptEntry(text=f"the river {'stone ' * (9 * n)}") for n in range(3)),
    )
    return BatchspecApp(Control(LiveSource(request), chosen, paused=True))


async def begun(pilot: Pilot[Any], app: BatchspecApp) -> None:
    await until(pilot, lambda: isinstance(app.screen, MainScreen), 60.0)
    await pilot.pause(0.1)


async def rounds(pilot: Pilot[Any], app: BatchspecApp, count: int) -> None:
    """So many more rounds."""
    wanted = app.control.timeline.last + count
    app.control.worker.step(count)
    await until(pilot, lambda: app.control.timeline.last >= wanted, 30.0)
    await pilot.pause(0.2)


async def choose(pilot: Pilot[Any], app: BatchspecApp, name: str) -> None:
    """Switch this fault with the keys."""
    await pilot.press("f")
    await until(pilot, lambda: isinstance(app.screen, FaultScreen))
    app.screen.query_one(OptionList).highlighted = NAMES.index(name)
    await pilot.pause(0.1)
    assert FAULTS[name].title in screen_text(app)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, MainScreen))
    await pilot.pause(0.1)


async def test_on_from_the_next_round_and_back_to_before() -> None:
    app = toy_app()
    async with app.run_test(size=(120, 35)) as pilot:
        await begun(pilot, app)
        await rounds(pilot, app, 3)
        timeline = app.control.timeline
        before = {index: track.length_at(3) for index, track in timeline.tracks.items()}
        texts = {index: track.text_at(3) for index, track in timeline.tracks.items()}
        await choose(pilot, app, "positions-not-rebuilt")
        await rounds(pilot, app, 3)
        assert [record.fault for record in timeline.rounds] == [
            *[""] * 3,
            *["positions-not-rebuilt"] * 3,
        ]
        broken = {v.invariant for record in timeline.rounds[3:] for v in record.violations}
        assert broken & set(FAULTS["positions-not-rebuilt"].breaks)
        assert "fault: Positions not rebuilt" in screen_text(app)
        wrong = {index: track.text_at(6) for index, track in timeline.tracks.items()}
        await pilot.press("4", "p")
        await pilot.pause(0.1)
        assert "fault:" not in screen_text(app), "it was not on in round 2"
        await pilot.press("end")
        await choose(pilot, app, "positions-not-rebuilt")
        await rounds(pilot, app, 1)
        record = timeline.rounds[6]
        assert record.fault == ""
        assert not record.violations
        assert {row.row: row.before for row in record.rows} == before
        assert "fault:" not in screen_text(app)
        for index, track in timeline.tracks.items():
            assert track.text_at(3) == texts[index]
            assert track.text_at(6) == wrong[index]
            assert track.text_at(7)[0] == "".join(texts[index])


async def test_from_one_fault_to_another_each_begins_where_all_was_well() -> None:
    app = toy_app()
    async with app.run_test(size=(120, 35)) as pilot:
        await begun(pilot, app)
        await rounds(pilot, app, 2)
        before = {i: t.length_at(2) for i, t in app.control.timeline.tracks.items()}
        await choose(pilot, app, "kv-not-realigned")
        await rounds(pilot, app, 2)
        await choose(pilot, app, "bonus-from-draft")
        await rounds(pilot, app, 1)
        record = app.control.timeline.rounds[4]
        assert record.fault == "bonus-from-draft"
        assert {row.row: row.before for row in record.rows} == before
        await choose(pilot, app, "bonus-from-draft")
        await rounds(pilot, app, 1)
        assert {r.row: r.before for r in app.control.timeline.rounds[5].rows} == before


async def test_after_the_end() -> None:
    app = toy_app(tokens=12)
    async with app.run_test(size=(80, 24)) as pilot:
        await begun(pilot, app)
        await rounds(pilot, app, 1)
        before = {i: t.length_at(1) for i, t in app.control.timeline.tracks.items()}
        await choose(pilot, app, "positions-not-rebuilt")
        app.control.worker.run()
        await until(pilot, lambda: app.control.state is State.FINISHED, 30.0)
        last = app.control.timeline.last
        await choose(pilot, app, "positions-not-rebuilt")
        await until(pilot, lambda: app.control.timeline.last > last, 30.0)
        await until(pilot, lambda: app.control.state is State.FINISHED, 30.0)
        record = app.control.timeline.rounds[last]
        assert record.fault == ""
        assert {row.row: row.before for row in record.rows} == before
        await choose(pilot, app, "bonus-from-draft")  # the run is over: it begins again
        await until(pilot, lambda: app.control.settings.fault == "bonus-from-draft")
        await until(pilot, lambda: app.control.timeline.rounds[:1] != [], 30.0)
        assert app.control.timeline.rounds[0].fault == "bonus-from-draft"


async def test_another_method_begins_again_with_eqspec() -> None:
    app = toy_app(method="slotspec")
    async with app.run_test(size=(120, 35)) as pilot:
        await begun(pilot, app)
        await rounds(pilot, app, 2)
        await choose(pilot, app, "rejected-kv-kept")
        await until(pilot, lambda: app.control.timeline.method == "eqspec", 30.0)
        assert app.control.settings.fault == "rejected-kv-kept"


async def test_a_paused_screen_says_what_was_switched() -> None:
    """No round shows it yet, and the status line does."""
    app = toy_app()
    title = FAULTS[NAMES[0]].title
    async with app.run_test(size=(150, 35)) as pilot:
        await begun(pilot, app)
        await rounds(pilot, app, 2)
        assert "fault" not in status(app)
        await choose(pilot, app, NAMES[0])
        assert f"fault: {title} from the next round" in status(app)
        await pilot.press("p")
        await pilot.pause(0.1)
        assert "fault" not in status(app)  # an earlier round was made without it
        await rounds(pilot, app, 1)
        await pilot.press("end")
        await pilot.pause(0.1)
        assert f"fault: {title} " in status(app)
        assert "next round" not in status(app)
        await choose(pilot, app, NAMES[0])
        assert title not in status(app)
        assert "fault: off from the next round" in status(app)
        await rounds(pilot, app, 1)
        assert "fault" not in status(app)


def status(app: BatchspecApp) -> str:
    """The first line of the screen."""
    return screen_text(app).splitlines()[0]


def test_a_fault_that_is_on_before_round_1_is_reported() -> None:
    title = FAULTS[NAMES[0]].title
    assert f" fault: {title} " in plain(alarm_pieces(Frame(fault_next=NAMES[0])))
    assert plain(alarm_pieces(Frame(fault_next=""))) == ""
    assert plain(alarm_pieces(Frame())) == ""
