"""Where runs are recorded: no file of this start is written over by a later run of it.

`--trace run.jsonl` names the first run's file. What follows it (a run that was started
again, a stop of the tour) goes to `run.2.jsonl`, `run.3.jsonl`, …; a comparison to
`run.compare.jsonl`, a fork to `run.fork.jsonl`, and on in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from engine.records.schema import Record

if TYPE_CHECKING:
    from engine.records.trace import TraceWriter


class Recording:
    """The traces of one start of the app.

    Args:
        path: of the first run's; None: nothing is recorded.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.written: list[Path] = []
        """All that were begun, in order."""
        self._run: Path | None = None
        """That of the present run."""
        self._writer: TraceWriter | None = None

    def of_run(self, records: Iterator[Record], *, goes_on: bool = False) -> Iterator[Record]:
        """The records of a run, written as they pass by.

        Args:
            goes_on: the run that had ended goes on, in the file that it has.

        Raises:
            UserError: the file cannot be written.
        """
        if self.path is None:
            yield from records
            return
        from engine.records.trace import TraceWriter

        append = goes_on and self._run is not None
        path = self._run if append and self._run is not None else self.new("")
        self._run = path
        with TraceWriter(path, append=append) as writer:
            self._writer = writer
            try:
                for record in records:
                    writer.write(record)
                    yield record
            finally:
                self._writer = None

    def beside(self, kind: str, records: Iterator[Record]) -> Iterator[Record]:
        """The records of something beside the run, `compare` or `fork`."""
        if self.path is None:
            yield from records
            return
        from engine.records.trace import TraceWriter

        with TraceWriter(self.new(kind)) as writer:
            for record in records:
                writer.write(record)
                yield record

    def note(self, record: Record) -> None:
        """Write a record that is not one of the run's own, among them."""
        if self._writer is not None:
            self._writer.write(record)

    def new(self, kind: str) -> Path:
        """The first name of this kind that this start has not used."""
        assert self.path is not None
        stem, *rest = self.path.name.split(".")
        number = 1
        while True:
            parts = [stem, *([kind] if kind else []), *([str(number)] if number > 1 else []), *rest]
            path = self.path.with_name(".".join(parts))
            if path not in self.written:
                self.written.append(path)
                return path
            number += 1
