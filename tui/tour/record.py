"""Makes the traces that are shipped, on the built-in pair:
`python -m tui.tour.record tui/tour/traces`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import zstandard

from engine.config.settings import Settings
from engine.records.schema import Record, RoundRecord
from engine.runs.worker import Progress
from tui.session.request import AppRequest
from tui.tour.source import REFERENCE, LiveTour
from tui.tour.stops import STOPS, Stop
from tui.view.state.timeline import Timeline

MORE = 6
"""Rounds beyond the last spot, so that there is something to walk through."""

LEVEL = 19


def silent(stage: str, fraction: float | None) -> None:
    """What loading reports is of no interest here."""


def record_tour(source: LiveTour, directory: Path, progress: Progress = silent) -> dict[str, int]:
    """Write a trace for each method of the tour. Returns the sizes in bytes."""
    sizes = {}
    methods = sorted({stop.method for stop in STOPS}, key=lambda name: name != REFERENCE)
    for method in methods:
        stops = [stop for stop in STOPS if stop.method == method]
        records = list(needed(source, stops, progress))
        lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        packed = zstandard.ZstdCompressor(level=LEVEL).compress(lines)
        (directory / f"{method}.jsonl.zst").write_bytes(packed)
        sizes[method] = len(packed)
    return sizes


def needed(source: LiveTour, stops: list[Stop], progress: Progress) -> Iterator[Record]:
    """A run as far as the stops need it, and its summary."""
    timeline, end = Timeline(), 0
    for record in source.open(stops[0].settings(Settings(inspect=True)), progress):
        timeline.add(record)  # type: ignore[arg-type]
        yield record
        if not isinstance(record, RoundRecord):
            continue
        if end == 0 and all(has_all(stop, timeline, source) for stop in stops):
            end = timeline.last + MORE
        if timeline.last == end:
            break
    result = source.result()
    if timeline.summary is None and result is not None:
        yield result[1]


def has_all(stop: Stop, timeline: Timeline, source: LiveTour) -> bool:
    """Whether all that the stop shows is in the rounds so far."""
    found = (moment.find(timeline, source.answers) for moment in stop.moments)
    return timeline.last >= stop.rounds and all(spot is not None for spot in found)


if __name__ == "__main__":
    made = record_tour(LiveTour(AppRequest(tour=True)), Path(sys.argv[1]))
    print(*(f"{name}: {size} bytes" for name, size in made.items()), sep="\n")
