"""Where the records come from: the live engine now, a recorded trace by the same shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from engine.config.settings import Settings
from engine.records.schema import Record
from engine.runs.worker import Progress


class Source(Protocol):
    """Makes runs. `open` is called in the engine's thread and may take its time."""

    name: str
    """What is loaded, in a word or two."""

    live: bool
    """Whether runs can be started again under other settings."""

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]: ...
