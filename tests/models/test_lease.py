"""One thread at a time runs the models of a pair, whoever asks, and nobody waits in vain."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from engine.config.settings import Settings
from engine.evaluation.compare import Compare
from engine.evaluation.fork import Branch, Fork
from engine.evaluation.oracle import Oracle
from engine.models.lease import Lease
from engine.pairs.load import Pair
from engine.records.history import History
from engine.records.schema import LaneRecord, OracleRecord, Record, RoundRecord, RunHeader
from engine.runs.run import Run
from engine.runs.worker import EngineWorker, Progress, State
from tests.tiny import mixed_prompts, tiny_pair

SETTINGS = Settings(method="eqspec", batch_size=3, draft_tokens=3, max_new_tokens=16)
PROMPTS = mixed_prompts(5, seed=3)


class Guard:
    """Wraps every forward of a pair and notes whether two were inside at once."""

    def __init__(self, pair: Pair) -> None:
        self.clashes = 0
        self.owners: list[int] = []
        self._inside: int | None = None
        assert pair.draft is not None
        for model in (pair.target, pair.draft):
            self._wrap(model)

    def _wrap(self, model: Any) -> None:
        forward = model.forward

        def guarded(*given: Any, **named: Any) -> Any:
            me = threading.get_ident()
            self.clashes += self._inside is not None
            self._inside = me
            self.owners.append(me)
            time.sleep(0.0003)  # long enough for another thread to come in
            try:
                return forward(*given, **named)
            finally:
                self.clashes += self._inside != me
                self._inside = None

        model.forward = guarded


Stream = Callable[[Pair], Iterator[Record]]


def a_run(pair: Pair) -> Iterator[Record]:
    return Run(pair, SETTINGS, PROMPTS).records()


def a_comparison(pair: Pair) -> Iterator[Record]:
    lanes = [replace(SETTINGS, method=name) for name in ("eqspec", "slotspec", "bsp")]
    return Compare(pair, lanes, PROMPTS).records()


def a_fork(pair: Pair) -> Iterator[Record]:
    stream = Run(pair, SETTINGS, PROMPTS).records()
    header = next(stream)
    assert isinstance(header, RunHeader)
    past: list[LaneRecord] = [next(stream), next(stream)]  # type: ignore[list-item]
    now = replace(SETTINGS, draft_tokens=1)
    more: Iterator[LaneRecord] = stream  # type: ignore[assignment]
    return Fork(pair, Branch(header, past, more, 2, SETTINGS, now)).records()


def an_oracle(pair: Pair) -> Iterator[Record]:
    """As a record a row, and the tolerance, which is measured in other forwards."""
    oracle = Oracle(pair)
    yield from Run(pair, replace(SETTINGS, max_new_tokens=1), PROMPTS).records()
    answers = list(oracle.answers(PROMPTS, SETTINGS))
    pieces = {place: str(answer.output_ids) for place, answer in enumerate(answers)}
    yield OracleRecord(rows=(), pieces=pieces, tolerance=oracle.tolerance(PROMPTS, SETTINGS))


def a_changing_run(pair: Pair) -> Iterator[Record]:
    """It begins again from its committed tokens, as for a fault or another K."""
    run = Run(pair, SETTINGS, PROMPTS)
    for number, record in enumerate(run.records()):
        yield record
        if number == 2:
            run.restart(replace(SETTINGS, fault="rejected-kv-kept"))
        if number == 4:
            run.restart(SETTINGS, run.lengths())


STREAMS: list[Stream] = [a_run, a_comparison, a_fork, an_oracle, a_changing_run]


def tokens(records: list[Record]) -> list[object]:
    """What was generated, without what the clock says."""
    return [
        (r.lane, r.round, [(row.row, row.committed) for row in r.rows])
        if isinstance(r, RoundRecord)
        else r.pieces
        for r in records
        if isinstance(r, RoundRecord | OracleRecord)
    ]


def worker_of(pair: Pair, stream: Stream, **options: Any) -> EngineWorker:
    def open_records(progress: Progress) -> Iterator[Record]:
        return stream(pair)

    return EngineWorker(open_records, History(), **options)


def wait(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def to_the_end(workers: list[EngineWorker]) -> None:
    """Until their threads are over: a comparison measures the tolerance after its lanes' end."""
    for worker in workers:
        worker._thread.join(60.0)
        assert not worker._thread.is_alive(), "waited in vain"


@pytest.mark.parametrize("beside", STREAMS, ids=lambda stream: stream.__name__)
@pytest.mark.parametrize("stream", [a_run, a_comparison], ids=lambda stream: stream.__name__)
def test_two_threads_take_turns_and_write_what_each_writes_alone(
    stream: Stream, beside: Stream
) -> None:
    alone = [tokens(list(one(tiny_pair()))) for one in (stream, beside)]
    pair = tiny_pair()
    guard = Guard(pair)
    workers = [worker_of(pair, one) for one in (stream, beside)]
    for worker in workers:
        worker.start()
    to_the_end(workers)
    assert guard.clashes == 0
    assert [worker.state for worker in workers] == [State.FINISHED] * 2
    assert [tokens(worker.history.since(0)) for worker in workers] == alone


def test_all_of_them_at_once() -> None:
    pair = tiny_pair()
    guard = Guard(pair)
    workers = [worker_of(pair, stream) for stream in STREAMS]
    for worker in workers:
        worker.start()
    to_the_end(workers)
    assert guard.clashes == 0
    assert [worker.state for worker in workers] == [State.FINISHED] * len(workers)


def test_nobody_has_to_wait_for_more_than_a_round_of_the_other() -> None:
    pair = tiny_pair()
    guard = Guard(pair)
    workers = [worker_of(pair, a_run), worker_of(pair, a_run)]
    for worker in workers:
        worker.start()
    to_the_end(workers)
    owners = guard.owners
    turns = [one for place, one in enumerate(owners) if not place or owners[place - 1] != one]
    rounds = sum(isinstance(r, RoundRecord) for r in workers[0].history.since(0))
    assert len(turns) >= rounds, "a thread took several rounds while the other waited"


def test_a_paused_and_a_stopped_worker_hold_nothing() -> None:
    pair = tiny_pair()
    paused = worker_of(pair, a_comparison, paused=True)
    stopped = worker_of(pair, a_run, speed=0.01)
    paused.start()
    stopped.start()
    wait(lambda: paused.state is State.PAUSED and len(stopped.history) > 1)
    runs = worker_of(pair, a_run)
    runs.start()
    wait(lambda: runs.state is State.FINISHED)
    paused.step(2)
    assert stopped.stop(5.0)
    again = worker_of(pair, a_run, after=stopped)
    again.start()
    wait(lambda: again.state is State.FINISHED)
    wait(lambda: paused.state is State.PAUSED)
    assert paused.stop(5.0)


def test_workers_that_are_paused_and_resumed_at_random_never_meet() -> None:
    pair = tiny_pair()
    guard = Guard(pair)
    workers = [worker_of(pair, stream, paused=True) for stream in (a_run, a_comparison, a_fork)]
    for worker in workers:
        worker.start()
    turn = 0
    end = time.monotonic() + 60.0
    while not all(worker.state.ended for worker in workers):
        assert time.monotonic() < end, "waited in vain"
        turn += 1
        worker = workers[turn % 3]
        (worker.run, worker.pause, partial(worker.step, 2))[turn % 7 % 3]()
        time.sleep(0.002)
    to_the_end(workers)
    assert guard.clashes == 0


def test_a_failed_round_gives_the_pair_back() -> None:
    pair = tiny_pair()
    run = Run(pair, SETTINGS, PROMPTS)
    run.loop.drafter.draft = None  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError):
        list(run.remaining())
    other = worker_of(pair, a_run)
    other.start()
    wait(lambda: other.state is State.FINISHED)


def test_the_owner_may_take_the_lease_again_and_those_who_wait_come_in_order() -> None:
    lease = Lease()
    order: list[int] = []

    def take(number: int) -> None:
        with lease:
            order.append(number)

    with lease, lease:
        threads = [threading.Thread(target=take, args=(number,)) for number in range(5)]
        for number, thread in enumerate(threads):
            thread.start()
            wait(lambda wanted=number + 1: len(lease._waiting) == wanted)  # type: ignore[misc]
        assert order == []
    for thread in threads:
        thread.join(5.0)
    assert order == [0, 1, 2, 3, 4]
