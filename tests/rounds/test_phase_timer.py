"""Phases are timed by events on CUDA: nothing waits, and nothing is lost."""

from __future__ import annotations

from typing import Any

import torch

from engine.rounds.phase_timer import Meter


class Clockwork:
    """A device that runs behind the program: what is queued takes its time when it gets there."""

    def __init__(self) -> None:
        self.devices = [torch.device("cuda")]
        self.queued = 0.0
        self.now = 0.0
        self.waited = 0

    def work(self, seconds: float) -> None:
        self.queued += seconds

    def mark(self) -> Moment:
        return Moment(self, self.queued)


class Moment:
    def __init__(self, device: Clockwork, at: float) -> None:
        self.device, self.at = device, at

    def query(self) -> bool:
        return self.device.now >= self.at

    def synchronize(self) -> None:
        self.device.waited += 1
        self.device.now = max(self.device.now, self.at)

    def elapsed_time(self, end_event: Any) -> float:
        assert self.query(), "read before the device came to it"
        assert end_event.query(), "read before the device came to it"
        return 1e3 * float(end_event.at - self.at)


def clockwork() -> tuple[Meter, Clockwork]:
    meter, device = Meter([]), Clockwork()
    meter.streams = device  # type: ignore[assignment]
    return meter, device


def test_a_phase_is_charged_with_the_devices_time() -> None:
    meter, device = clockwork()
    with meter.phase("draft"):
        device.work(2.0)
    device.work(5.0)  # between two phases: nobody's
    with meter.phase("verify"):
        device.work(3.0)
    with meter.phase("draft"):
        device.work(1.0)
    device.now = device.queued
    seconds = meter.take()
    assert (seconds.draft, seconds.verify) == (3.0, 3.0)
    assert device.waited == 0


def test_what_the_device_has_not_reached_is_read_a_round_later() -> None:
    meter, device = clockwork()
    with meter.phase("verify"):
        device.work(3.0)
    device.now = device.queued  # the round's tokens are on the host
    with meter.phase("realign"):
        device.work(4.0)
    first = meter.take()
    assert (first.verify, first.realign) == (3.0, 0.0)
    with meter.phase("verify"):
        device.work(2.0)
    device.now = device.queued
    second = meter.take()
    assert (second.verify, second.realign) == (2.0, 4.0)
    assert device.waited == 0


def test_the_last_round_of_a_run_loses_nothing() -> None:
    meter, device = clockwork()
    with meter.phase("realign"):
        device.work(4.0)
    assert meter.take(last=True).realign == 4.0
    assert device.waited == 1


def test_without_a_cuda_device_the_clock_is_read() -> None:
    meter = Meter([torch.device("cpu")])
    with meter.phase("draft"):
        sum(range(1000))
    assert meter.take().draft > 0.0
    assert meter.take().total == 0.0
