"""Seconds by phase of a round."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch

from engine.records.schema import Phases


class Mark(Protocol):
    """A moment on a device (`torch.cuda.Event`)."""

    def query(self) -> bool:
        """Whether the device has come to it."""

    def synchronize(self) -> None:
        """Wait until it has."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from here to a later mark."""


class _Span(NamedTuple):
    phase: str
    start: Mark
    stop: Mark


class Meter:
    """Measures the phases of a round: wall clock on the CPU, events on CUDA.

    On CUDA the kernels run behind the Python code, so a clock would charge each phase
    with its predecessor's work. Events are recorded instead, and nothing ever waits for
    them: the device has passed those of drafting, verification and acceptance when the
    round's tokens are on the host. What it has not passed when the round is over, the end
    of a realignment perhaps, is read a round later.

    Args:
        devices: all on which the models lie; any CUDA device among them makes it events.
    """

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self.streams = Streams([d for d in dict.fromkeys(devices) if d.type == "cuda"])
        self._seconds: dict[str, float] = {}
        self._spans: deque[_Span] = deque()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the enclosed work to a phase (a field of `Phases`)."""
        if self.streams.devices:
            start = self.streams.mark()
            yield
            self._spans.append(_Span(name, start, self.streams.mark()))
            return
        began = time.perf_counter()
        yield
        self._add(name, time.perf_counter() - began)

    def take(self, *, last: bool = False) -> Phases:
        """The seconds since the last call, as far as the devices have come.

        Args:
            last: no further call will follow: wait for what is still to come.
        """
        if last and self._spans:
            self._spans[-1].stop.synchronize()
        while self._spans and (last or self._spans[0].stop.query()):
            span = self._spans.popleft()
            self._add(span.phase, span.start.elapsed_time(span.stop) / 1e3)
        phases = Phases(**self._seconds)
        self._seconds.clear()
        return phases

    def _add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds


class Streams:
    """The current streams of some CUDA devices, timed as if they were one.

    The devices wait for one another at each mark (the host does not), so that a phase in
    which only the draft's device works is charged with that work. The phases of a round
    follow one another in any case: nothing that could overlap is held up.
    """

    def __init__(self, devices: list[torch.device]) -> None:
        self.devices = devices

    def mark(self) -> Mark:
        """A moment that all the streams have reached, on the first device's clock."""
        first, *others = [torch.cuda.current_stream(device) for device in self.devices]
        for other in others:
            first.wait_event(other.record_event())
        now = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        first.record_event(now)
        for other in others:
            other.wait_event(now)
        return now
