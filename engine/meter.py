"""Seconds by phase of a round."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.records import Phases


class Meter:
    """Measures the phases of a round: wall clock on the CPU, events on CUDA.

    On CUDA the kernels run behind the Python code, so a clock would charge each phase
    with its predecessor's work. Events are recorded instead and read once, when the
    round is over: there is no synchronisation per phase.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._seconds: dict[str, float] = {}
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the enclosed work to a phase (a field of `Phases`)."""
        if self._cuda:
            start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            start.record()
            yield
            stop.record()
            self._events.append((name, start, stop))
            return
        began = time.perf_counter()
        yield
        self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - began

    def take(self) -> Phases:
        """The seconds since the last call."""
        if self._events:
            self._events[-1][2].synchronize()
            for name, start, stop in self._events:
                milliseconds = start.elapsed_time(stop)
                self._seconds[name] = self._seconds.get(name, 0.0) + milliseconds / 1e3
            self._events.clear()
        phases = Phases(**self._seconds)
        self._seconds.clear()
        return phases
