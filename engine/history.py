"""The append-only store of a run's records, written by the engine, read by the screen.

One thread appends, another reads; neither ever waits for the other. A reader
keeps its own place (`History.since`) and takes what is new, as often as it
likes and as much at a time as it can afford.
"""

from __future__ import annotations

from engine.records import Record


class History:
    """Records in the order in which they came."""

    def __init__(self) -> None:
        self._records: list[Record] = []

    def append(self, record: Record) -> None:
        """Add a record. Appending to a list is atomic: no lock is needed."""
        self._records.append(record)

    def __len__(self) -> int:
        return len(self._records)

    def since(self, place: int, limit: int | None = None) -> list[Record]:
        """The records from `place` on, at most `limit` of them."""
        end = None if limit is None else place + limit
        return self._records[place:end]
