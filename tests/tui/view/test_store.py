"""Long runs: every round is kept, the memory stays small, and any round is there at once."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator
from statistics import median

import pytest
from msgspec.structs import replace

from engine.config.settings import Settings
from engine.records.fold import Tally
from engine.records.history import History
from engine.records.row import AcceptTest, BonusChoice, RowRound
from engine.records.schema import Record, RoundRecord, RunHeader
from engine.runs.worker import Progress
from tests.synthetic import records
from tests.tui_app import ready, until
from tui.app.app import BatchspecApp
from tui.screens.main import MainScreen
from tui.session.control import Control
from tui.view.state.store import LOOKED_AT, NEWEST, RoundStore
from tui.view.state.timeline import Timeline

ROWS = 8
TOP = tuple((token, 0.1) for token in range(5))


def rounds(method: str, count: int) -> Iterator[RoundRecord]:
    """Rounds of eight rows, inspected, of as many runs as it takes."""
    made, seed = 0, 0
    while made < count:
        seed += 1
        for record in records(method, batch_size=ROWS, max_new_tokens=400, ends=0.0, seed=seed):
            if isinstance(record, RoundRecord) and made < count:
                made += 1
                yield replace(record, round=made, rows=tuple(inspected(r) for r in record.rows))


def inspected(row: RowRound) -> RowRound:
    """With what the inspector needs."""
    tests = tuple(
        AcceptTest(token=token, draft_prob=token / 7.0, target_prob=token / 9.0, top=TOP)
        for token in row.draft_token_ids
    )
    return replace(row, tests=tests, choice=BonusChoice(target_prob=row.row / 3.0, top=TOP))


@pytest.mark.parametrize("bound", [0, 4_000, 10**9])
def test_every_round_comes_back_as_it_was(bound: int) -> None:
    made = list(rounds("slotspec", 150))
    store = RoundStore(bound)
    for record in made:
        store.append(record)
    assert len(store) == len(made)
    assert list(store) == made
    assert store[-1] == made[-1]
    assert store[3:9] == made[3:9]
    chance = random.Random(1)
    for _ in range(2 * LOOKED_AT):
        place = chance.randrange(len(made))
        assert store[place] == made[place]
    assert store.held <= bound
    with pytest.raises(IndexError):
        store[len(made)]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "bytes_a_round"), [("eqspec", 5_000), ("bsp", 20_000)])
def test_two_thousand_rounds_of_eight_rows_stay_small(method: str, bytes_a_round: int) -> None:
    """The figure that docs/app.md states, the newest rounds left out."""
    timeline = Timeline()
    stream = rounds(method, 2000)
    timeline.add(next(r for r in records(method, batch_size=ROWS) if isinstance(r, RunHeader)))
    for _ in range(NEWEST):
        timeline.add(next(stream))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for record in stream:
        timeline.add(record)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert timeline.last == 2000
    each = grown / (2000 - NEWEST)
    packed = timeline.rounds.held / (2000 - NEWEST)
    print(f"{method}: {each:.0f} bytes a round, {packed:.0f} of them packed")
    assert each < bytes_a_round
    assert timeline.rounds.held < timeline.rounds.bound


def test_a_far_round_is_there_at_once() -> None:
    store = RoundStore()
    for record in rounds("bsp", 600):
        store.append(record)
    took = []
    for place in random.Random(2).sample(range(600 - NEWEST), 40):
        begin = time.perf_counter()
        store[place]
        took.append(time.perf_counter() - begin)
    assert median(took) < 0.02


class Long:
    """A recording of 2 000 rounds."""

    name = "long"
    live = False

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        yield next(r for r in records(batch_size=ROWS) if isinstance(r, RunHeader))
        yield from rounds("eqspec", 2000)


@pytest.mark.slow
async def test_any_of_two_thousand_rounds_is_painted_within_50_ms() -> None:
    app = BatchspecApp(Control(Long(), Settings(batch_size=ROWS)))
    async with app.run_test(size=(120, 35)) as pilot:
        await until(pilot, lambda: app.control.timeline.last == 2000, 60.0)
        await ready(pilot)
        screen = app.screen
        assert isinstance(screen, MainScreen)
        took = []
        for number in random.Random(1).sample(range(1, 2000), 40):
            begin = time.perf_counter()
            app.playhead.jump(number, 2000)
            screen.show_frame()
            took.append(time.perf_counter() - begin)
            await pilot.pause(0.01)
        print(f"{1000 * median(took):.1f} ms a motion")
        assert median(took) < 0.05


def test_a_tally_keeps_nothing_and_adds_up() -> None:
    made = list(rounds("exspec", 40))
    tally = Tally()
    for record in made:
        tally.add(record)
    totals = tally.totals()
    assert totals.rounds == 40
    assert totals.output_tokens == sum(len(row.committed) for r in made for row in r.rows)
    assert totals.grouped_rounds == sum(record.kind == "grouped" for record in made)
    assert totals.seconds == pytest.approx(sum(record.seconds.total for record in made))


def test_what_the_screen_has_taken_is_released() -> None:
    history = History()
    made = list(rounds("eqspec", 10))
    for record in made[:6]:
        history.append(record)
    assert history.since(0, 4) == made[:4]
    history.release(4)
    assert len(history) == 6
    assert history.since(4) == made[4:6]
    history.append(made[6])
    assert history.since(6) == made[6:7]
    history.release(4)
    assert len(history) == 7
