"""Traces: the records of one or more lanes in a file, one JSON object a line.

Each record is written out at once, so that a trace can be read while the run goes
on, and what was recorded survives a crash. A name that ends in `.zst` is compressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, get_args

import msgspec
import zstandard

from engine.config.errors import UserError
from engine.records.schema import (
    SCHEMA,
    ChangeRecord,
    Failure,
    Prompt,
    Record,
    RoundRecord,
    RunHeader,
    Summary,
)
from engine.records.upgrade import OLDEST, upgrade

CHUNK = 1 << 14
"""Bytes of a compressed file that are unpacked at a time."""

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

    Where it was cut off (the run was killed, or is still going on), the trace ends
    without an error. Records of a kind that this program does not know are left
    out, and so are fields (docs/trace.md, versions).

    Args:
        notices: what could not be read is added here, in a line each: a trace is then opened
            up to its damage, and nothing is raised that comes after the first record.

    Raises:
        DamagedTrace: a line in the middle cannot be read; the message names it.
        UserError: the file cannot be read, or is no trace of this format.
    """
    empty = True
    cut_notices: list[str] = []
    running = _Running()
    try:
        for record in _records(path, cut_notices):
            empty = False
            if record is not None:
                running.see(record)
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
        cut = (
            "was cut off in its first line: nothing of it can be read"
            if cut_notices
            else "is empty"
        )
        raise UserError(f"{path}: the trace {cut}")
    if notices is not None:
        notices += cut_notices or running.notice()


def trace_header(path: Path) -> RunHeader:
    """The first record of a trace: whether there is anything to be read at all.

    Raises:
        UserError: see `read_trace`.
    """
    first = next(read_trace(path))
    assert isinstance(first, RunHeader), "nothing else comes first"
    return first


class _Running:
    """Rows that have not ended yet, of each lane: those left over show that a trace was cut."""

    def __init__(self) -> None:
        self._rows: dict[int, set[int]] = {}
        self._known: dict[int, int] = {}

    def see(self, record: Record) -> None:
        if isinstance(record, RunHeader):
            self._rows[record.lane], self._known[record.lane] = set(), 0
            self._join(record.lane, record.prompts)
        elif isinstance(record, ChangeRecord):
            self._join(record.lane, record.prompts)
        elif isinstance(record, RoundRecord):
            rows = self._rows.setdefault(record.lane, set())
            rows |= set(record.back)
            for row in record.rows:
                (rows.discard if row.finish_reason else rows.add)(row.row)
        elif isinstance(record, Summary | Failure):
            for lane in [record.lane] if record.lane in self._rows else list(self._rows):
                self._rows[lane].clear()

    def _join(self, lane: int, prompts: Sequence[Prompt]) -> None:
        good = {prompt.index for prompt in prompts if prompt.error is None}
        self._rows.setdefault(lane, set()).update(good)
        self._known[lane] = self._known.get(lane, 0) + len(good)

    def notice(self) -> list[str]:
        """One line if any are left."""
        left = sum(map(len, self._rows.values()))
        if not left:
            return []
        known = max(left, sum(self._known.values()))
        return [f"the trace ends before its run does: {left} of {known} rows had not ended"]


class _Unreadable(Exception):
    """A line that is no record, with the reason."""

    def __init__(self, line: int, reason: object) -> None:
        super().__init__(str(reason))
        self.line = line


class _Peek(msgspec.Struct):
    """What every version of the format tells of a record."""

    type: str = ""
    schema: str = ""


def _records(path: Path, notices: list[str]) -> Iterator[Record | None]:
    """The record of each line; None for a kind that is not known. A cut is reported."""
    decoder = _Decoder()
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file, packed=path.suffix == ".zst"), start=1):
                if not line.endswith(b"\n"):
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
    except _Cut:
        notices.append(f"the trace was cut off after line {number}, or is still being written")
    except (zstandard.ZstdError, ValueError) as error:
        raise _Unreadable(max(number + isinstance(error, zstandard.ZstdError), 1), error) from error


class _Decoder:
    """Decodes the lines of one trace, each in the version that its first header names."""

    def __init__(self) -> None:
        self._today = msgspec.json.Decoder(Record)
        self._version: int | None = None

    def decode(self, line: bytes) -> Record:
        if self._version is None:
            self._version = _version(_peek(line).schema)
        if not OLDEST <= self._version < _version(SCHEMA):
            return self._today.decode(line)
        record = upgrade(msgspec.json.decode(line), self._version)
        return msgspec.convert(record, Record, str_keys=True)  # type: ignore[no-any-return]


def _lines(file: BinaryIO, *, packed: bool) -> Iterator[bytes]:
    if not packed:
        return iter(file)
    return _unpacked(file)


class _Cut(Exception):
    """The compressed file ends before its last frame does."""


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a compressed file, of one frame or several.

    Raises:
        _Cut: after the last whole line, where the last frame has no end.
    """
    rest, whole = b"", True
    while packed := file.read(CHUNK):
        while packed:
            if whole:
                frame, whole = zstandard.ZstdDecompressor().decompressobj(), False
            lines = (rest + frame.decompress(packed)).split(b"\n")
            rest = lines.pop()
            yield from (line + b"\n" for line in lines)
            whole, packed = frame.eof, frame.unused_data
    if not whole:
        raise _Cut
    if rest:
        yield rest


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
    if schema and not OLDEST <= _version(schema) <= _version(SCHEMA):
        newer = _version(schema) > _version(SCHEMA)
        way_out = "; a newer version of this program can" if newer else ""
        raise ValueError(f"it is of the format {schema}, this program reads {SCHEMA}{way_out}")


def _version(schema: str) -> int:
    """The number at the end of a schema of ours; 0 for any other text."""
    name, _, number = schema.rpartition("/")
    ours = name == SCHEMA.rpartition("/")[0] and number.isdecimal()
    return int(number) if ours else 0
