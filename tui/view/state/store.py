"""The rounds of a lane, however many: the latest as they are, the others packed.

A round of a long run may take half a megabyte as objects (a row that keeps every rejected
token names each of its holes in each round), and a fiftieth of that packed. So the newest
rounds and those looked at last are kept as they are; the others are packed, and beyond a
bound they go to a temporary file that has no name and vanishes with the process.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import BinaryIO, NamedTuple, overload

import msgspec
import zstandard

from engine.records.schema import RoundRecord

NEWEST = 16
"""Rounds that are kept as they are, from the end."""

LOOKED_AT = 16
"""Older ones that are kept as they are: those looked at last."""

BOUND = 64 * 2**20
"""Bytes of packed rounds in memory; what comes beyond goes to the file."""


class _Filed(NamedTuple):
    """Where a packed round lies in the file."""

    offset: int
    length: int


class RoundStore:
    """A sequence of rounds that can be appended to, and read meanwhile in another thread."""

    def __init__(self, bound: int = BOUND) -> None:
        self.bound = bound
        self.held = 0
        """Bytes of packed rounds in memory."""
        self._packed: list[bytes | _Filed] = []
        self._newest: list[RoundRecord] = []
        self._looked_at: OrderedDict[int, RoundRecord] = OrderedDict()
        self._file: BinaryIO | None = None
        self._lock = Lock()
        self._pack = zstandard.ZstdCompressor(level=1).compress
        self._unpack = zstandard.ZstdDecompressor().decompress
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(RoundRecord).decode

    def append(self, record: RoundRecord) -> None:
        with self._lock:
            self._newest.append(record)
            if len(self._newest) > NEWEST:
                roomy = self._pack(self._encode(self._newest.pop(0)))
                # the library hands out bytes in a buffer as large as the input: keep what fits
                self._packed.append(self._put(bytes(memoryview(roomy))))

    def __len__(self) -> int:
        return len(self._packed) + len(self._newest)

    @overload
    def __getitem__(self, place: int) -> RoundRecord: ...
    @overload
    def __getitem__(self, place: slice) -> list[RoundRecord]: ...
    def __getitem__(self, place: int | slice) -> RoundRecord | list[RoundRecord]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        with self._lock:
            if place < 0:
                place += len(self)
            if not 0 <= place < len(self):
                raise IndexError(place)
            if place >= len(self._packed):
                return self._newest[place - len(self._packed)]
            known = self._looked_at.pop(place, None)
            record = self._take(place) if known is None else known
            self._looked_at[place] = record
            if len(self._looked_at) > LOOKED_AT:
                self._looked_at.popitem(last=False)
            return record

    def __iter__(self) -> Iterator[RoundRecord]:
        """All of them; those that are unpacked for it are not kept."""
        place = 0
        while place < len(self):
            with self._lock:
                record = self._looked_at.get(place)
                if record is None and place < len(self._packed):
                    record = self._take(place)
                elif record is None:
                    record = self._newest[place - len(self._packed)]
            yield record
            place += 1

    def _put(self, packed: bytes) -> bytes | _Filed:
        if self.held + len(packed) > self.bound:
            with contextlib.suppress(OSError):  # no room there either: stay in memory
                return self._put_in_file(packed)
        self.held += len(packed)
        return packed

    def _put_in_file(self, packed: bytes) -> _Filed:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - for its lifetime
        offset = self._file.seek(0, 2)
        view = memoryview(packed)
        while view:
            view = view[self._file.write(view) :]
        return _Filed(offset, len(packed))

    def _take(self, place: int) -> RoundRecord:
        packed = self._packed[place]
        if isinstance(packed, _Filed):
            assert self._file is not None
            self._file.seek(packed.offset)
            packed = self._file.read(packed.length)
        return self._decode(self._unpack(packed))
