"""Changing a live run from the screen: the rows go on from where they stand."""

from __future__ import annotations

from pathlib import Path

import engine.pairs.load  # noqa: F401 - once, before the clock of a test runs
from engine.config.settings import Settings
from engine.pairs.registry import PairRequest
from engine.records.schema import ChangeRecord
from engine.records.trace import read_trace
from engine.runs.worker import State
from engine.text.prompts import PromptEntry
from tests.tui_app import ready, screen_text, until
from tui.app.app import BatchspecApp
from tui.session.control import Control
from tui.session.live import LiveSource
from tui.session.request import AppRequest
from tui.view.sentences import change_words

PROMPTS = tuple(
    PromptEntry(text=text) for text in ("the river", "a cold stone", "old book", "rain")
)


def toy_app(trace: Path | None = None, **settings: object) -> BatchspecApp:
    chosen = Settings(
        method="eqspec", batch_size=2, max_new_tokens=60, inspect=True, dtype="float32", threads=1
    )
    for name, value in settings.items():
        chosen = Settings(
            **{field: getattr(chosen, field) for field in chosen.__struct_fields__} | {name: value}
        )
    request = AppRequest(
        pair=PairRequest(name="toy"), settings=chosen, prompts=PROMPTS, trace=trace, chat=False
    )
    return BatchspecApp(Control(LiveSource(request), chosen, paused=True))


async def test_k_and_method_change_from_the_next_round_on(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    app = toy_app(trace)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        await pilot.press("3", "n")
        await until(pilot, lambda: app.control.timeline.last == 3)
        timeline = app.control.timeline
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: len(timeline.changes) == 1)
        await until(pilot, lambda: "K 5→4" in screen_text(app))
        await pilot.press("m")
        await pilot.pause(0.1)
        assert "from the next round on" in screen_text(app)
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: "EQSPEC → SLOTSPEC" in screen_text(app))
        await pilot.press("n")
        await until(pilot, lambda: timeline.last == 4)
        assert app.control.timeline is timeline, "nothing begins again"
        assert timeline.rounds[3].draft_tokens == 4
        assert timeline.rounds[3].kind == "slots"
        assert timeline.rounds[3].rows[0].before == timeline.rounds[2].rows[0].content
        await until(pilot, lambda: "SLOTSPEC" in screen_text(app))
        await pilot.press("p")
        await pilot.pause(0.1)
        shown = screen_text(app)
        assert "EQSPEC" in shown
        assert "K 5" in shown
        await pilot.press("end", "space")
        await until(pilot, lambda: app.control.state is State.FINISHED, 30.0)
    words = [
        change_words(record) for record in read_trace(trace) if isinstance(record, ChangeRecord)
    ]
    assert words == ["K = 4", "method = slotspec"]


async def test_a_change_that_cannot_be_made_is_reported_and_the_run_goes_on() -> None:
    app = toy_app()
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await ready(pilot)
        changes = app.screen.changes  # type: ignore[attr-defined]
        changes.draft_token(99, "x")
        await until(pilot, lambda: "row 99 has ended" in screen_text(app))
        await pilot.press("n")
        await until(pilot, lambda: app.control.timeline.last == 1)


async def test_k_is_chosen_by_itself_and_the_screen_says_why() -> None:
    app = toy_app(draft_tokens="auto")
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        await pilot.press("4", "n")
        await until(pilot, lambda: app.control.timeline.last == 4)
        await until(pilot, lambda: "measuring" in screen_text(app))
        assert "auto" in screen_text(app)


async def test_interventions_by_their_menu() -> None:
    app = toy_app()
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("2", "n")
        await until(pilot, lambda: app.control.timeline.last == 2)
        timeline = app.control.timeline

        async def choose(place: int, text: str) -> ChangeRecord:
            count = len(timeline.changes)
            await pilot.press("e")
            await pilot.pause(0.1)
            await pilot.press(*["down"] * place, "enter")
            await pilot.pause(0.1)
            await pilot.press("ctrl+u", *text, "enter")
            await until(pilot, lambda: len(timeline.changes) > count)
            return timeline.changes[-1]

        forced = await choose(0, "#300 #301")
        assert "is to draft" in change_words(forced)
        joined = await choose(1, "one more")
        assert joined.prompts[0].text == "one more"
        assert len(timeline.tracks) == 5
        assert change_words(await choose(3, "0.7")) == "temperature = 0.7"
        await until(pilot, lambda: "T 0.0→0.7" in screen_text(app))
        await pilot.press("n")
        await until(pilot, lambda: timeline.last == 3)
        row = timeline.rounds[2].rows[0]
        assert row.forced == 2
        assert row.draft_token_ids[:2] == (300, 301)
        assert row.tests[0].draw is not None
        await pilot.press("enter")
        await until(pilot, lambda: " 1! " in screen_text(app))
        await pilot.press("escape", "e")
        await pilot.pause(0.1)
        await pilot.press("down", "down", "down", "enter")
        await pilot.pause(0.1)
        await pilot.press("ctrl+u", *"hot", "enter")
        await until(pilot, lambda: "“hot” is no number" in screen_text(app))


async def test_on_from_an_earlier_round() -> None:
    app = toy_app()
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("6", "n")
        await until(pilot, lambda: app.control.timeline.last == 6)
        timeline = app.control.timeline
        await pilot.press("2", "g", "e")
        await pilot.pause(0.1)
        assert "after round 2" in screen_text(app)
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: len(timeline.changes) == 1)
        await pilot.press("n")
        await until(pilot, lambda: timeline.last == 7)
        again, first = timeline.rounds[6], timeline.rounds[2]
        assert [row.before for row in again.rows] == [row.before for row in first.rows]
        assert [row.committed for row in again.rows] == [row.committed for row in first.rows]
