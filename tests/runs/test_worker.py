"""The engine's thread: its gate, its end, its failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from engine.config.errors import UserError
from engine.records.history import History
from engine.records.schema import Failure, Record, RoundRecord, Summary
from engine.runs.worker import EngineWorker, Progress, State
from tests.synthetic import records


def source(progress: Progress) -> Iterator[Record]:
    progress("loading", None)
    yield from records(max_new_tokens=40)


def wait(condition: object, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    assert callable(condition)
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def holds(worker: EngineWorker) -> None:
    """Waits until the engine's thread stands between two rounds."""
    reached = threading.Event()
    worker.between_rounds(reached.set)
    assert reached.wait(5.0), "the worker does not hold"


def rounds(worker: EngineWorker) -> int:
    return sum(isinstance(record, RoundRecord) for record in worker.history.since(0))


def test_runs_to_the_end() -> None:
    worker = EngineWorker(source, History())
    worker.start()
    wait(lambda: worker.state is State.FINISHED)
    everything = worker.history.since(0)
    assert isinstance(everything[-1], Summary)
    assert rounds(worker) == len(everything) - 2
    assert not worker.running


def test_paused_shows_the_header_and_no_round() -> None:
    worker = EngineWorker(source, History(), paused=True)
    worker.start()
    wait(lambda: len(worker.history) == 1)
    holds(worker)
    assert worker.state is State.PAUSED
    assert len(worker.history) == 1
    assert worker.stop(2.0)
    assert worker.state is State.STOPPED


def test_steps_are_counted() -> None:
    worker = EngineWorker(source, History(), paused=True)
    worker.start()
    wait(lambda: len(worker.history) == 1)
    worker.step(3)
    wait(lambda: rounds(worker) == 3)
    holds(worker)
    assert rounds(worker) == 3
    worker.step()
    wait(lambda: rounds(worker) == 4)
    worker.run()
    wait(lambda: worker.state is State.FINISHED)


def test_pause_and_run() -> None:
    worker = EngineWorker(source, History(), speed=200.0)
    worker.start()
    wait(lambda: rounds(worker) >= 2)
    worker.pause()
    holds(worker)
    held = rounds(worker)
    holds(worker)
    assert rounds(worker) == held
    worker.run()
    wait(lambda: rounds(worker) > held)
    worker.stop()


def test_speed_limits_and_changes_at_once() -> None:
    worker = EngineWorker(source, History(), speed=0.1)
    worker.start()
    wait(lambda: rounds(worker) == 1)
    holds(worker)
    assert rounds(worker) == 1
    worker.speed = None
    wait(lambda: worker.state is State.FINISHED)


def test_stop_does_not_wait_for_a_round() -> None:
    begun, over = threading.Event(), threading.Event()

    def slow(progress: Progress) -> Iterator[Record]:
        yield from list(records())[:1]
        begun.set()
        over.wait(5.0)

    worker = EngineWorker(slow, History())
    worker.start()
    begun.wait(2.0)
    before = time.monotonic()
    assert not worker.stop()
    assert time.monotonic() - before < 0.1
    over.set()
    assert worker.stop(2.0)


def test_stop_ends_loading_which_can_clear_up() -> None:
    cleared = threading.Event()

    def endless(progress: Progress) -> Iterator[Record]:
        try:
            while True:
                progress("downloading", None)
                time.sleep(0.005)
        finally:
            cleared.set()
        yield

    worker = EngineWorker(endless, History())
    worker.start()
    wait(lambda: worker.stage[0] == "downloading")
    assert worker.stop(2.0)
    assert cleared.is_set()
    assert worker.state is State.STOPPED
    assert len(worker.history) == 0


def test_a_failure_is_a_record_and_a_traceback_in_the_log(tmp_path: Path) -> None:
    def broken(progress: Progress) -> Iterator[Record]:
        yield from list(records())[:4]
        raise ValueError("no more memory")

    log = tmp_path / "logs" / "log.txt"
    worker = EngineWorker(broken, History(), log=log)
    worker.start()
    wait(lambda: worker.state is State.FAILED)
    failure = worker.history.since(0)[-1]
    assert isinstance(failure, Failure)
    assert failure.message == "ValueError: no more memory"
    assert failure.round == 3
    assert failure.log == str(log)
    assert "Traceback" in log.read_text()
    assert worker.exit_code == 1


def test_a_user_error_keeps_its_words_and_its_status() -> None:
    def wrong(progress: Progress) -> Iterator[Record]:
        raise UserError("unknown pair 'x'; choose one of a, b")

    worker = EngineWorker(wrong, History())
    worker.start()
    wait(lambda: worker.state is State.FAILED)
    failure = worker.history.since(0)[-1]
    assert isinstance(failure, Failure)
    assert failure.message.startswith("unknown pair 'x'")
    assert worker.exit_code == 2


def test_the_next_worker_waits_for_the_one_before() -> None:
    inside: list[str] = []

    def first(progress: Progress) -> Iterator[Record]:
        yield from list(records())[:1]
        time.sleep(0.2)
        inside.append("first ends")

    def second(progress: Progress) -> Iterator[Record]:
        inside.append("second begins")
        yield from records(max_new_tokens=8)

    one = EngineWorker(first, History())
    one.start()
    wait(lambda: len(one.history) == 1)
    one.stop()
    two = EngineWorker(second, History(), after=one)
    two.start()
    wait(lambda: two.state is State.FINISHED)
    assert inside == ["first ends", "second begins"]


def test_actions_run_in_the_thread_between_rounds() -> None:
    names: list[str] = []
    worker = EngineWorker(source, History(), paused=True)
    worker.start()
    wait(lambda: len(worker.history) == 1)
    worker.between_rounds(lambda: names.append(threading.current_thread().name))
    wait(lambda: bool(names))
    assert names == ["engine"]
    worker.stop(2.0)


def test_a_recorded_source_is_not_gated() -> None:
    worker = EngineWorker(source, History(), paused=True, gated=False)
    worker.start()
    wait(lambda: worker.state is State.FINISHED)
