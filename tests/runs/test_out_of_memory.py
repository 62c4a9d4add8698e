"""Memory runs out in the middle of a run: it holds, nothing is lost, and it can go on."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import torch

from engine.config.errors import OutOfMemory, is_out_of_memory
from engine.config.methods import CORRECT_METHODS, METHODS
from engine.config.settings import Settings
from engine.models.kv_cache import KVStore
from engine.records.history import History
from engine.records.schema import ChangeRecord, Record, RoundRecord, Summary
from engine.runs.holding import holding
from engine.runs.intervene import change
from engine.runs.out_of_memory import could_lower
from engine.runs.run import Run
from engine.runs.worker import EngineWorker, Progress, State
from tests.tiny import finished, mixed_prompts, tiny_pair
from tests.tui_app import ready, screen_text, until
from tui.app.app import BatchspecApp
from tui.session.control import Control
from tui.view.sentences import change_words, lower_words

PAIR = tiny_pair()
PROMPTS = mixed_prompts(4)
PLAIN: dict[str, Any] = {"batch_size": 4, "draft_tokens": 3, "max_new_tokens": 16}


class Full:
    """A device that has no memory left from the given call on, until somebody makes room."""

    def __init__(self, name: str, first: int) -> None:
        self.name, self.first = name, first
        self.calls = 0
        self.room = False
        self.refused: weakref.ref[torch.Tensor] | None = None
        """The block that could not be computed."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls += 1
        if self.calls >= self.first and not self.room:
            self.refused = weakref.ref(given[0].ids)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return self.original(*given, **named)

    @contextmanager
    def inside(self, owner: Any) -> Iterator[Full]:
        self.original = getattr(owner, self.name)
        setattr(owner, self.name, self)
        try:
            yield self
        finally:
            setattr(owner, self.name, self.original)


@contextmanager
def full(first: int = 5) -> Iterator[Full]:
    """The target's forward fails from its `first` call on."""
    device = Full("forward", first)
    with device.inside(PAIR.target):
        yield device
    PAIR.target.__dict__.pop("forward", None)


def run(method: str = "eqspec", **settings: Any) -> Run:
    return Run(PAIR, Settings(method=method, **(PLAIN | settings)), PROMPTS)


def outputs(summary: Record) -> list[tuple[int, ...]]:
    assert isinstance(summary, Summary)
    return [row.output_ids for row in summary.rows]


class TestARun:
    @pytest.mark.parametrize("method", METHODS)
    def test_goes_on_from_where_it_stood(self, method: str) -> None:
        job = run(method)
        records = []
        with full() as device:
            for record in holding(job, job.records()):
                records.append(record)
                if isinstance(record, ChangeRecord):
                    assert device.refused is not None
                    assert device.refused() is None, "the failed round's memory is not freed"
                    assert all(not store.buffers for store in job.loop.layout.stores)
                    device.room = True
        (held,) = [record for record in records if isinstance(record, ChangeRecord)]
        assert held.held
        assert change_words(held).startswith(
            f"out of memory in round {held.round + 1}: lower --batch-size"
        )
        rounds = [record.round for record in records if isinstance(record, RoundRecord)]
        assert rounds == list(range(1, len(rounds) + 1))
        if method in CORRECT_METHODS:  # what the baselines write depends on their padding
            assert outputs(records[-1]) == finished(PAIR, PROMPTS, method=method, **PLAIN).outputs

    def test_a_round_that_fails_after_its_commit_leaves_no_trace(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job, whole = run(), finished(PAIR, PROMPTS, method="eqspec", **PLAIN)
        original, seen = KVStore.regrid, []

        def regrid(store: KVStore, source: Any) -> int:
            seen.append(store)
            if len(seen) == 3:  # realignment needs new buffers when the rows are committed
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory: 64 bytes")
            return original(store, source)

        monkeypatch.setattr(KVStore, "regrid", regrid)
        records = list(holding(job, job.records()))
        told = [token for r in records if isinstance(r, RoundRecord) for row in r.rows
                for token in row.committed]  # fmt: skip
        assert sum(isinstance(record, ChangeRecord) for record in records) == 1
        assert len(told) == sum(len(output) for output in whole.outputs)
        assert outputs(records[-1]) == whole.outputs
        summary = records[-1]
        assert isinstance(summary, Summary)
        rows = {row.index: 0 for row in summary.rows}
        for record in records:
            for row in record.rows if isinstance(record, RoundRecord) else ():
                rows[row.row] += row.accepted
        assert {row.index: row.accepted for row in summary.rows} == rows

    def test_smaller_settings_help(self) -> None:
        job = run()
        with full() as device:
            for record in holding(job, job.records()):
                if isinstance(record, ChangeRecord):
                    device.room = True
                    change(job, msgspec.structs.replace(job.settings, batch_size=1))
        assert outputs(record) == finished(PAIR, PROMPTS, method="eqspec", **PLAIN).outputs

    def test_without_anybody_to_wait_for_it_ends_with_what_to_lower(self) -> None:
        job = run()
        with full(), pytest.raises(OutOfMemory, match=r"lower --batch-size \(4\)"):
            list(job.records())
        assert any(row.output_ids for row in job.summary().rows)


class TestWords:
    def test_what_is_to_be_lowered(self) -> None:
        def words(settings: Settings) -> str:
            return lower_words(could_lower(settings))

        assert words(Settings()) == "lower --batch-size (4) or --max-new-tokens (128)"
        fewer = words(Settings(batch_size=1))
        assert fewer == "lower --max-new-tokens (128) or --draft-tokens (5)"
        assert "--window (24)" in words(Settings(method="exspec"))
        least = Settings(batch_size=1, max_new_tokens=1, draft_tokens=1)
        assert words(least) == "take a smaller model or dtype"

    @pytest.mark.parametrize(
        ("error", "is_one"),
        [
            (torch.OutOfMemoryError("x"), True),
            (MemoryError(), True),
            (RuntimeError("MPS backend out of memory"), True),
            (RuntimeError("shapes cannot be multiplied"), False),
            (ValueError("out of memory"), False),
        ],
    )
    def test_what_counts(self, error: Exception, is_one: bool) -> None:
        assert is_out_of_memory(error) is is_one


class Live:
    """A run as the app makes it."""

    name = "tiny"
    live = True

    def __init__(self) -> None:
        self.job = run()

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        self.job = Run(PAIR, settings, PROMPTS)
        yield from holding(self.job, self.job.records())

    def intervene(self, act: Callable[[Run], ChangeRecord]) -> ChangeRecord:
        return act(self.job)


def test_the_worker_pauses_and_tries_again_when_it_is_told_to() -> None:
    source = Live()
    with full() as device:
        worker = EngineWorker(lambda progress: source.open(Settings(**PLAIN), progress), History())
        worker.start()
        wait(lambda: worker.state is State.PAUSED)
        held = worker.history.since(0)[-1]
        assert isinstance(held, ChangeRecord)
        worker.step()
        wait(lambda: worker.history.since(0)[-1] is not held)
        wait(lambda: worker.state is State.PAUSED)
        device.room = True
        worker.run()
        wait(lambda: worker.state is State.FINISHED)
    summary = worker.history.since(0)[-1]
    assert outputs(summary) == finished(PAIR, PROMPTS, method="eqspec", **PLAIN).outputs
    assert worker.exit_code == 0


async def test_the_app_says_so_and_goes_on() -> None:
    source = Live()
    control = Control(source, Settings(**PLAIN))
    app = BatchspecApp(control)
    with full() as device:
        async with app.run_test(size=(120, 35), notifications=True) as pilot:
            await ready(pilot, 1)
            await until(pilot, lambda: bool(control.timeline.held))
            await until(pilot, lambda: "out of memory in round" in screen_text(app))
            shown = screen_text(app)
            assert "lower --batch-size (4)" in shown
            await until(pilot, lambda: "◉ out of memory" in screen_text(app))
            assert control.timeline.tokens_at(control.timeline.last) > 0
            device.room = True
            await pilot.press("space")
            await until(pilot, lambda: control.state is State.FINISHED)
            await until(pilot, lambda: "◉ out of memory" not in screen_text(app))
    assert control.timeline.failure is None


def wait(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)
