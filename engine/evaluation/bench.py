"""Throughput and costs: every method at every batch size, on equal terms.

The methods are interleaved, so that a machine that slows down slows all of them, and
each is run once before anything is counted. What is reported is the median over the
repeats with the smallest and the largest value beside it. The baseline is batched
autoregressive decoding at the same batch size, with the same forwards and attention.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import psutil
import torch

from engine.config.methods import check_method
from engine.config.settings import Settings
from engine.pairs.environment import describe
from engine.records.schema import PairInfo, Phases, Prompt, RoundRecord
from engine.runs.run import Run

if TYPE_CHECKING:
    from engine.pairs.load import Pair

SCHEMA = "batchspec/bench/1"
BASELINE = "autoregressive"
CONTINUOUS = "slotspec"
"""With it runs the continuous baseline: the same slots, nothing drafted."""

Result = TypeVar("Result")
Progress = Callable[[str, float | None], None]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `totals`, and the engine's own time."""

    output_tokens: float
    seconds: float
    tokens_per_second: float
    rounds: float
    row_rounds: float
    accepted_per_row_round: float
    seconds_by_phase: Phases
    realign_share: float
    realign_bytes: float
    grouped_rounds: float
    fallback_rounds: float
    peak_memory_bytes: float
    engine_seconds_per_round: float
    """Time outside the two models, a round, prefill left out. On the CPU: all that is not a
    forward pass, checks and records included. On CUDA, where forward passes run behind the
    program: schedule, accept and realign."""
    wall_seconds: float
    """From the first round to the last by the clock, records included."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One method at one batch size."""

    method: str
    batch_size: int
    continuous: bool
    """Whether rows join and leave (for autoregressive: the slots' baseline)."""
    draft_tokens: int | str
    median: Sample
    min: Sample
    max: Sample
    speedup_vs_autoregressive: float
    """Median tokens per second over the padded autoregressive batch's of the same size."""


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `bench`."""

    schema: str = SCHEMA
    """Where acceptance was forced: that it was, and at what rate."""
    pair: PairInfo
    settings: dict[str, object]
    machine: dict[str, Any]
    prompts: int
    repeats: int
    results: tuple[Entry, ...]


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    settings: Settings

    @property
    def continuous(self) -> bool:
        return self.settings.method == CONTINUOUS

    @property
    def words(self) -> str:
        slots = " in slots" if self.method == BASELINE and self.continuous else ""
        return f"{self.method}{slots}, B={self.settings.batch_size}"


def bench(
    pair: Pair,
    settings: Settings,
    methods: Sequence[str],
    prompts: Sequence[Prompt],
    *,
    batch_sizes: Sequence[int],
    repeats: int = 3,
    progress: Progress = lambda stage, fraction: None,
) -> Benchmark:
    """Time the methods; the baseline always runs, asked for or not.

    Raises:
        UserError: a method that is not built, or a batch size out of bounds.
    """
    cases = [case for size in batch_sizes for case in _cases(settings, methods, size)]
    samples: dict[_Case, list[Sample]] = {case: [] for case in cases}
    steps, step = len(cases) * (repeats + 1), 0
    for repeat in range(repeats + 1):
        for case in cases:
            stage = "warming up" if repeat == 0 else f"repeat {repeat} of {repeats}"
            progress(f"{stage}: {case.words}", step / steps)
            sample = measure(pair, case.settings, prompts)
            if repeat > 0:
                samples[case].append(sample)
            step += 1
    base = {
        case.settings.batch_size: _median(samples[case], "tokens_per_second")
        for case in cases
        if case.method == BASELINE and not case.continuous
    }
    header = Run(pair, settings, ()).header()
    recorded = {k: v for k, v in header.settings.items() if k not in ("method", "batch_size")}
    return Benchmark(
        pair=pair.info,
        settings=recorded,
        machine=machine(),
        prompts=len(prompts),
        repeats=repeats,
        results=tuple(
            _entry(case, samples[case], base[case.settings.batch_size]) for case in cases
        ),
    )


def _cases(settings: Settings, methods: Sequence[str], size: int) -> list[_Case]:
    """The baseline, the continuous one where slots take part, then the methods."""
    sized = msgspec.structs.replace(settings, batch_size=size)
    plain = msgspec.structs.replace(sized, method=BASELINE, draft_tokens=0).check()
    cases = [_Case(method=BASELINE, settings=plain)]
    if CONTINUOUS in methods:
        slots = msgspec.structs.replace(plain, method=CONTINUOUS)
        cases.append(_Case(method=BASELINE, settings=slots))
    for name in methods:
        check_method(name)
        if name != BASELINE:
            one = msgspec.structs.replace(sized, method=name).check()
            cases.append(_Case(method=name, settings=one))
    return cases


def measure(pair: Pair, settings: Settings, prompts: Sequence[Prompt]) -> Sample:
    """One run to the end."""
    run = Run(pair, settings, prompts)
    records = run.records()
    next(records)  # the header: texts of the prompts
    rounds = 0
    with _inside(pair, run) as inside:
        began = time.perf_counter()
        for record in records:
            rounds += isinstance(record, RoundRecord)
        wall = time.perf_counter() - began
    totals = run.totals()
    phases = totals.seconds_by_phase
    outside = wall - sum(inside)
    if pair.target.device.type == "cuda":
        outside = phases.schedule + phases.accept + phases.realign
    fields = {name: getattr(totals, name) for name in totals.__struct_fields__}
    return Sample(
        **fields,
        engine_seconds_per_round=outside / rounds if rounds else 0.0,
        wall_seconds=wall,
    )


@contextmanager
def _inside(pair: Pair, run: Run) -> Iterator[list[float]]:
    """Collect the seconds of every forward pass of both models, and of every prefill."""
    seconds: list[float] = []
    layout = run.loop.layout
    models = [model for model in (pair.target, pair.draft) if model is not None]

    def timed(call: Callable[..., Result]) -> Callable[..., Result]:
        def watched(*arguments: Any, **named: Any) -> Result:
            before, began = len(seconds), time.perf_counter()
            result = call(*arguments, **named)
            # what it contains is counted with it, and not twice
            seconds[before:] = [time.perf_counter() - began]
            return result

        return watched

    try:
        layout.admit = timed(layout.admit)  # type: ignore[method-assign]
        for model in models:
            model.forward = timed(model.forward)  # type: ignore[method-assign]
        yield seconds
    finally:
        for holder in (layout, *models):
            vars(holder).pop("admit", None)
            vars(holder).pop("forward", None)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    facts = describe()
    return {
        "platform": facts["platform"],
        "devices": facts["devices"],
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count(),
        "logical_cores": psutil.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": facts["memory"]["total_bytes"],
        "versions": facts["versions"],
    }


def _entry(case: _Case, samples: list[Sample], base: float) -> Entry:
    median = _over(samples, statistics.median)
    return Entry(
        method=case.method,
        batch_size=case.settings.batch_size,
        continuous=case.continuous,
        draft_tokens=case.settings.draft_tokens,
        median=median,
        min=_over(samples, min),
        max=_over(samples, max),
        speedup_vs_autoregressive=median.tokens_per_second / base if base else 0.0,
    )


def _over(samples: list[Sample], choose: Callable[[list[float]], float]) -> Sample:
    """A statistic of every field on its own."""
    fields: dict[str, Any] = {}
    for name in Sample.__struct_fields__:
        if name != "seconds_by_phase":
            fields[name] = choose([getattr(sample, name) for sample in samples])
    phases = {
        name: choose([getattr(sample.seconds_by_phase, name) for sample in samples])
        for name in Phases.__struct_fields__
    }
    return Sample(**fields, seconds_by_phase=Phases(**phases))


def _median(samples: list[Sample], name: str) -> float:
    return float(statistics.median(getattr(sample, name) for sample in samples))
