"""The append-only store of a run's records, written by the engine, read by the screen.

One thread appends, another reads; neither ever waits for the other. A reader
keeps its own place (`History.since`) and takes what is new, as often as it
likes and as much at a time as it can afford. What it has taken and kept elsewhere
it may release.
"""

from __future__ import annotations

from engine.records.schema import Record


class History:
    """Records in the order in which they came."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._released = 0

    def append(self, record: Record) -> None:
        """Add a record. Appending to a list is atomic: no lock is needed."""
        self._records.append(record)

    def __len__(self) -> int:
        return self._released + len(self._records)

    def since(self, place: int, limit: int | None = None) -> list[Record]:
        """The records from `place` on, at most `limit` of them (those that are left)."""
        begin = max(0, place - self._released)
        end = None if limit is None else begin + limit
        return self._records[begin:end]

    def release(self, place: int) -> None:
        """Forget the records before `place`. Only the one reader may call this."""
        count = place - self._released
        if count > 0:
            # both steps are atomic, and only this thread looks at what lies between them
            del self._records[:count]
            self._released = place
