"""Traces: the records of one or more lanes in a file, one JSON object a line.

Each record is written out at once, so that a trace can be read while the run goes
on, and what was recorded survives a crash. A name that ends in `.zst` is compressed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, get_args

import msgspec
import zstandard

from engine.errors import UserError
from engine.records import SCHEMA, Record, RunHeader

KINDS: tuple[str, ...] = tuple(kind.__struct_config__.tag for kind in get_args(Record))
"""The kinds of records that this version knows: the `type` of each line."""


class TraceWriter:
    """Writes records; to be used as a context manager, or closed.

    Args:
        append: go on with a trace that is there (a run that had ended goes on).

    Raises:
        UserError: the file cannot be written (at once, when it is opened).
    """

    def __init__(self, path: Path, *, append: bool = False) -> None:
        self.path = path
        self._encoder = msgspec.json.Encoder()
        try:
            self._file: BinaryIO = path.open("ab" if append else "wb")
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


class DamagedTrace(UserError):
    """A trace that can be read up to some line, and not beyond."""


def read_trace(path: Path, notices: list[str] | None = None) -> Iterator[Record]:
    """The records of a trace, in the order in which they were written.

    A last line that was cut off (the run was killed, or is still going on) ends the
    trace without an error. Records of a kind that this program does not know are left
    out, and so are fields (docs/trace.md, versions).

    Args:
        notices: is told, in a line each, what could not be read: a trace is then opened
            up to its damage, and nothing is raised that comes after the first record.

    Raises:
        DamagedTrace: a line in the middle cannot be read; the message names it.
        UserError: the file cannot be read, or is no trace of this format.
    """
    empty = True
    try:
        for record in _records(path, notices):
            empty = False
            if record is not None:
                yield record
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except _Unreadable as error:
        message = f"{path}, line {error.line}: not a trace: {error}"
        if error.line <= 1:
            raise UserError(message) from error
        if notices is None:
            raise DamagedTrace(message) from error
        notices.append(f"the trace is damaged: line {error.line} cannot be read ({error})")
        return
    if empty:
        raise UserError(f"{path}: the trace is empty")


def trace_header(path: Path) -> RunHeader:
    """The first record of a trace: whether there is anything to be read at all.

    Raises:
        UserError: see `read_trace`.
    """
    first = next(read_trace(path))
    assert isinstance(first, RunHeader), "nothing else comes first"
    return first


class _Unreadable(Exception):
    """A line that is no record, with the reason."""

    def __init__(self, line: int, reason: object) -> None:
        super().__init__(str(reason))
        self.line = line


class _Peek(msgspec.Struct):
    """What every version of the format tells of a record."""

    type: str = ""
    schema: str = ""


def _records(path: Path, notices: list[str] | None) -> Iterator[Record | None]:
    """The record of each line; None for a kind that is not known."""
    decoder = msgspec.json.Decoder(Record)
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file, packed=path.suffix == ".zst"), start=1):
                if not line.endswith(b"\n"):
                    if notices is not None:
                        notices.append(f"the trace ends in the middle of line {number}")
                    break
                try:
                    record = decoder.decode(line)
                except (msgspec.DecodeError, ValueError) as error:
                    peek = _peek(line)
                    _check_schema(peek.schema if number == 1 else "")
                    if number == 1 or peek.type in ("", *KINDS):
                        raise _Unreadable(number, error) from error
                    yield None
                    continue
                _check(record, first=number == 1)
                yield record
    except (zstandard.ZstdError, ValueError) as error:
        raise _Unreadable(max(number + isinstance(error, zstandard.ZstdError), 1), error) from error


def _lines(file: BinaryIO, *, packed: bool) -> Iterator[bytes]:
    if not packed:
        return iter(file)
    plain = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return iter(io.BufferedReader(plain))


def _peek(line: bytes) -> _Peek:
    try:
        return msgspec.json.decode(line, type=_Peek)
    except (msgspec.DecodeError, ValueError):
        return _Peek()


def _check(record: Record, *, first: bool) -> None:
    """Raises ValueError when the record cannot stand there."""
    if isinstance(record, RunHeader):
        _check_schema(record.schema)
    elif first:
        raise ValueError("it does not begin with a run header")


def _check_schema(schema: str) -> None:
    """Raises ValueError for a format that is not this one."""
    if schema and schema != SCHEMA:
        way_out = "; a newer version of this program can" if _version(schema) > 1 else ""
        raise ValueError(f"it is of the format {schema}, this program reads {SCHEMA}{way_out}")


def _version(schema: str) -> int:
    """The number at the end of a schema of ours; 0 for any other text."""
    name, _, number = schema.rpartition("/")
    ours = name == SCHEMA.rpartition("/")[0] and number.isdecimal()
    return int(number) if ours else 0
