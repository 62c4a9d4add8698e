"""Comparisons: lanes in one thread, kept level, with the oracle beside them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from engine.config.limits import PACES, Pace
from engine.config.settings import Settings
from engine.evaluation.compare import Compare
from engine.evaluation.oracle import Oracle
from engine.records.history import History
from engine.records.schema import (
    Failure,
    OracleRecord,
    Record,
    RoundRecord,
    RunHeader,
    Summary,
    TickRecord,
)
from engine.records.trace import TraceWriter, read_trace
from engine.runs.worker import EngineWorker, Progress, State
from tests.tiny import finished, mixed_prompts, tiny_pair

METHODS = ("eqspec", "exspec", "bsp", "dsd")
SETTINGS = Settings(batch_size=3, draft_tokens=3, max_new_tokens=14)
PROMPTS = mixed_prompts(5, seed=3)


def lanes_of(*methods: str, settings: Settings = SETTINGS) -> list[Settings]:
    return [with_fields(settings, method=method) for method in methods]


def compare(*methods: str, pace: Pace = "round") -> Compare:
    return Compare(tiny_pair(), lanes_of(*(methods or METHODS)), PROMPTS, pace=pace)


@pytest.fixture(scope="module")
def everything() -> list[Record]:
    return list(compare().records())


def of_lane(records: list[Record], lane: int) -> list[RoundRecord]:
    return [r for r in records if isinstance(r, RoundRecord) and r.lane == lane]


def ticks(records: list[Record]) -> Iterator[list[int]]:
    """The lanes that went in each tick, in order."""
    went: list[int] = []
    for record in records:
        if isinstance(record, RoundRecord):
            went.append(record.lane)
        elif isinstance(record, TickRecord) and record.tick:
            yield went
            went = []


def test_each_lane_is_the_run_that_it_would_be_alone(everything: list[Record]) -> None:
    summaries = {r.lane: r for r in everything if isinstance(r, Summary)}
    for lane, settings in enumerate(lanes_of(*METHODS)):
        alone = finished(
            tiny_pair(),
            PROMPTS,
            method=settings.method,
            batch_size=3,
            draft_tokens=3,
            max_new_tokens=14,
        )
        assert [row.output_ids for row in summaries[lane].rows] == alone.outputs
        assert len(of_lane(everything, lane)) == len(alone.rounds)


def test_by_rounds_every_lane_that_runs_goes_once_a_tick(everything: list[Record]) -> None:
    ended: set[int] = set()
    last = {lane: of_lane(everything, lane)[-1].round for lane in range(4)}
    for number, went in enumerate(ticks(everything), start=1):
        assert Counter(went) == Counter(lane for lane in range(4) if lane not in ended)
        ended |= {lane for lane in range(4) if last[lane] == number}


@pytest.mark.parametrize("pace", PACES)
def test_the_lane_that_is_furthest_behind_goes_next(pace: Pace) -> None:
    records = list(compare("autoregressive", "eqspec", pace=pace).records())
    done = dict.fromkeys(range(2), 0.0)
    running = {0, 1}
    for record in records:
        if isinstance(record, RoundRecord):
            assert done[record.lane] == min(done[lane] for lane in running)
            tokens = sum(len(row.committed) for row in record.rows)
            done[record.lane] = {
                "round": record.round,
                "tokens": done[record.lane] + tokens,
                "time": record.elapsed,
            }[pace]
        elif isinstance(record, Summary):
            running.discard(record.lane)


def test_by_tokens_a_lane_that_speculates_needs_fewer_rounds_for_as_much() -> None:
    records = list(compare("autoregressive", "eqspec", pace="tokens").records())
    assert any(Counter(went)[0] > Counter(went)[1] > 0 for went in ticks(records))


def test_a_tick_says_how_far_each_lane_is(everything: list[Record]) -> None:
    rounds = dict.fromkeys(range(4), 0)
    for record in everything:
        if isinstance(record, RoundRecord):
            rounds[record.lane] = record.round
        elif isinstance(record, TickRecord):
            assert record.rounds == rounds


def test_the_oracle_is_given_piece_by_piece_and_ahead_of_the_lanes(
    everything: list[Record],
) -> None:
    said: dict[int, list[int]] = {}
    gaps: dict[int, list[float]] = {}
    ends: dict[int, str] = {}
    lengths: Counter[tuple[int, int]] = Counter()
    for record in everything:
        if isinstance(record, OracleRecord):
            for row in record.rows:
                assert row.first == len(said.setdefault(row.row, []))
                assert row.row not in ends
                said[row.row].extend(row.output_ids)
                gaps.setdefault(row.row, []).extend(row.gaps)
                if row.finish_reason:
                    ends[row.row] = row.finish_reason
        elif isinstance(record, RoundRecord):
            for one in record.rows:
                lengths[record.lane, one.row] += len(one.committed)
        elif isinstance(record, TickRecord):
            for (_, index), length in lengths.items():
                assert index in ends or len(said[index]) > length
    answers = list(Oracle(tiny_pair()).answers(PROMPTS, SETTINGS))
    assert {a.index: list(a.output_ids) for a in answers} == said
    assert {a.index: list(a.gaps) for a in answers} == gaps
    assert {a.index: a.finish_reason for a in answers} == ends


def test_the_tolerance_is_measured_once(everything: list[Record]) -> None:
    measured = [r.tolerance for r in everything if isinstance(r, OracleRecord)]
    (tolerance,) = [value for value in measured if value is not None]
    assert 0.0 <= tolerance < 1e-9


def test_what_the_oracle_knows_is_not_computed_again() -> None:
    oracle = Oracle(tiny_pair())
    list(oracle.answers(PROMPTS, SETTINGS))
    for prompt in PROMPTS:
        growing = list(oracle.growing(prompt, PROMPTS, SETTINGS))
        assert len(growing) == 1
        assert growing[0].finish_reason
    fresh = Oracle(tiny_pair())
    steps = list(fresh.growing(PROMPTS[0], PROMPTS, SETTINGS))
    assert len(steps) > 2
    assert len(list(fresh.growing(PROMPTS[0], PROMPTS, SETTINGS))) == 1


def test_a_lane_that_cannot_run_does_not_stop_the_others() -> None:
    logged: list[str] = []
    pair = replace(tiny_pair(), draft=None)
    both = Compare(pair, lanes_of("bsp", "eqspec"), PROMPTS, log=log_to(logged))
    records = list(both.records())
    (failure,) = [r for r in records if isinstance(r, Failure)]
    assert failure.lane == 0
    assert "bsp needs a draft model" in failure.message
    assert not logged, "a user's mistake has no traceback"
    assert [r.lane for r in records if isinstance(r, Summary)] == [1]
    assert not of_lane(records, 0)


def test_a_lane_that_breaks_does_not_stop_the_others() -> None:
    logged: list[str] = []
    both = Compare(
        tiny_pair(),
        lanes_of("eqspec", "exspec"),
        PROMPTS,
        log=lambda t: logged.append(t) or "log.txt",
    )
    records: list[Record] = []
    for record in both.records():
        records.append(record)
        if isinstance(record, TickRecord) and record.tick == 2:
            both.lanes[0].stream = broken()
    (failure,) = [r for r in records if isinstance(r, Failure)]
    assert (failure.lane, failure.round, failure.log) == (0, 2, "log.txt")
    assert "ZeroDivisionError" in failure.message
    assert "Traceback" in logged[0]
    assert [r.lane for r in records if isinstance(r, Summary)] == [1]


def broken() -> Iterator[Record]:
    yield from (1 / 0 for _ in range(1))  # type: ignore[misc]


def log_to(logged: list[str]) -> Callable[[str], str]:
    def log(text: str) -> str:
        logged.append(text)
        return "log.txt"

    return log


def test_a_lane_begins_again_under_another_method_and_catches_up() -> None:
    both = compare("eqspec", "bsp")
    records: list[Record] = []
    for record in both.records():
        records.append(record)
        if isinstance(record, TickRecord) and record.tick == 3:
            both.change(1, lanes_of("slotspec")[0])
    headers = [r for r in records if isinstance(r, RunHeader) and r.lane == 1]
    assert [header.method for header in headers] == ["bsp", "slotspec"]
    (summary,) = [r for r in records if isinstance(r, Summary) and r.lane == 1]
    (first,) = [r for r in records if isinstance(r, Summary) and r.lane == 0]
    assert [r.output_ids for r in summary.rows] == [r.output_ids for r in first.rows]
    levels = [r.rounds for r in records if isinstance(r, TickRecord)]
    assert levels[3] == {0: 3, 1: 3}
    assert levels[4] == {0: 4, 1: 4}


def test_a_trace_has_all_of_it(everything: list[Record], tmp_path: Path) -> None:
    path = tmp_path / "compare.jsonl"
    with TraceWriter(path) as trace:
        for record in everything:
            trace.write(record)
    assert list(read_trace(path)) == everything


class TestWorker:
    """The engine's thread over a comparison."""

    def test_a_step_is_a_tick(self) -> None:
        worker = worker_of(compare().records, paused=True)
        wait(lambda: any(isinstance(r, TickRecord) for r in worker.history.since(0)))
        holds(worker)
        assert worker.state is State.PAUSED
        held = worker.history.since(0)
        assert sum(isinstance(r, RunHeader) for r in held) == 4
        assert not any(isinstance(r, RoundRecord) for r in held)
        worker.step(2)
        wait(lambda: worker.state is State.PAUSED and ticks_done(worker) == 2)
        holds(worker)
        assert ticks_done(worker) == 2
        for lane in range(4):
            assert len(of_lane(worker.history.since(0), lane)) == 2
        worker.run()
        wait(lambda: worker.state is State.FINISHED)
        assert sum(isinstance(r, Summary) for r in worker.history.since(0)) == 4

    def test_a_failed_lane_is_not_the_end(self) -> None:
        pair = replace(tiny_pair(), draft=None)
        worker = worker_of(Compare(pair, lanes_of("bsp", "eqspec"), PROMPTS).records)
        wait(lambda: worker.state.ended)
        failures = [r for r in worker.history.since(0) if isinstance(r, Failure)]
        assert [failure.lane for failure in failures] == [0], failures
        assert worker.state is State.FINISHED

    def test_when_every_lane_fails_it_has_failed(self) -> None:
        pair = replace(tiny_pair(), draft=None)
        worker = worker_of(Compare(pair, lanes_of("bsp", "dsd"), PROMPTS).records)
        wait(lambda: worker.state.ended)
        assert worker.state is State.FAILED


def worker_of(records: Callable[[], Iterator[Record]], *, paused: bool = False) -> EngineWorker:
    def open_records(progress: Progress) -> Iterator[Record]:
        return records()

    worker = EngineWorker(open_records, History(), paused=paused)
    worker.start()
    return worker


def wait(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def holds(worker: EngineWorker) -> None:
    """Waits until the engine's thread stands between two ticks."""
    reached = threading.Event()
    worker.between_rounds(reached.set)
    assert reached.wait(20.0), "the worker does not hold"


def ticks_done(worker: EngineWorker) -> int:
    done = [r.tick for r in worker.history.since(0) if isinstance(r, TickRecord)]
    return max(done, default=0)
