"""Traces: the records of one or more lanes in a file, one JSON object a line.

Each record is written out at once, so that a trace can be read while the run goes
on, and what was recorded survives a crash. A name that ends in `.zst` is compressed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec
import zstandard

from engine.errors import UserError
from engine.records import SCHEMA, Record, RunHeader


class TraceWriter:
    """Writes records; to be used as a context manager, or closed.

    Raises:
        UserError: the file cannot be written (at once, when it is opened).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._encoder = msgspec.json.Encoder()
        try:
            self._file: BinaryIO = path.open("wb")
        except OSError as error:
            raise UserError(f"--trace {path}: cannot be written: {error.strerror}") from error
        self._packed = (
            zstandard.ZstdCompressor(level=3).stream_writer(self._file)
            if path.suffix == ".zst"
            else None
        )

    def write(self, record: Record) -> None:
        """Append one record and flush it to the file."""
        line = self._encoder.encode(record) + b"\n"
        if self._packed is None:
            self._file.write(line)
        else:
            self._packed.write(line)
            self._packed.flush(zstandard.FLUSH_BLOCK)
        self._file.flush()

    def close(self) -> None:
        """Finish the file. Can be called twice."""
        if self._packed is not None and not self._file.closed:
            self._packed.close()  # type: ignore[no-untyped-call]
        self._file.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()


def read_trace(path: Path) -> Iterator[Record]:
    """The records of a trace, in the order in which they were written.

    A last line that was cut off (the run was killed, or is still going on) ends the
    trace without an error.

    Raises:
        UserError: the file cannot be read, or is no trace of this format; the message
            names the line.
    """
    decoder = msgspec.json.Decoder(Record)
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file, packed=path.suffix == ".zst"), start=1):
                if not line.endswith(b"\n"):
                    break
                record = decoder.decode(line)
                _check(record, first=number == 1)
                yield record
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, zstandard.ZstdError, ValueError) as error:
        raise UserError(f"{path}, line {max(number, 1)}: not a trace: {error}") from error
    if number == 0:
        raise UserError(f"{path}: the trace is empty")


def _lines(file: BinaryIO, *, packed: bool) -> Iterator[bytes]:
    if not packed:
        return iter(file)
    plain = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return iter(io.BufferedReader(plain))


def _check(record: Record, *, first: bool) -> None:
    """Raises ValueError when the record cannot stand there."""
    if isinstance(record, RunHeader):
        if record.schema != SCHEMA:
            raise ValueError(f"it is of the format {record.schema}, this program reads {SCHEMA}")
    elif first:
        raise ValueError("it does not begin with a run header")
