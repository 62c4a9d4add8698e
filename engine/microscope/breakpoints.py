"""Breakpoints: conditions on the records of a run, at which it is to be held.

Pure logic over records: a live run, a comparison and a recorded trace are watched by the
same code. A breakpoint is written as `--break` has it: a condition, and `row=N` where it
is meant for one row only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from engine.config.errors import UserError
from engine.records.divergence import Divergence
from engine.records.row import RowRound
from engine.records.schema import RoundRecord
from engine.records.violation import Violation

INVARIANTS = ("I1", "I2", "I3", "I4", "I5")

ALLOWED = (
    "diverge, invariant, I1 … I5, finish, fallback, accept=0, accept=K, realign>5%, round=42, "
    'token=123, text="foo"; each with row=N if you like'
)
"""What a breakpoint can be, in words."""

WORDS = ("diverge", "invariant", *INVARIANTS, "finish", "fallback")
"""Conditions without a value."""

_PART = re.compile(r'([A-Za-z]\w*)\s*(?:(<=|>=|=|<|>)\s*("(?:[^"\\]|\\.)*"|\S+))?\s*')
_NUMBER = re.compile(r"\d+(\.\d+)?%?")


class Breakpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One condition; `parse_breakpoint` makes it from its text."""

    kind: str
    """diverge, invariant, I1 … I5, finish, fallback, accept, realign, round, token, text."""
    sign: str = "="
    number: float | None = None
    """Of accept, realign (a share), round and token; None: `accept=K`."""
    text: str = ""
    row: int | None = None
    """Only this row; None: any."""

    def __str__(self) -> str:
        """As it is written."""
        row = "" if self.row is None else f" row={self.row}"
        return f"{self.kind}{self._value()}{row}"

    def _value(self) -> str:
        if self.kind in WORDS:
            return ""
        if self.kind == "text":
            return "=" + msgspec.json.encode(self.text).decode()
        if self.number is None:
            return f"{self.sign}K"
        if self.kind == "realign":
            return f"{self.sign}{100 * self.number:g}%"
        return f"{self.sign}{self.number:g}"


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A breakpoint that applied, and what was found."""

    breakpoint: Breakpoint
    lane: int
    round: int
    row: int | None = None
    entry: RowRound | None = None
    """The row's part of the round (finish, accept, token)."""
    violation: Violation | None = None
    """What broke (invariant, I1 … I5)."""
    divergence: Divergence | None = None
    """Where the row differs from the oracle (diverge)."""
    padded: tuple[int, ...] = ()
    """The rows that were padded (fallback)."""
    share: float = 0.0
    """Of the round's time that realignment took (realign)."""


def parse_breakpoint(text: str) -> Breakpoint:
    """A breakpoint from its text.

    Raises:
        UserError: it is none; the message says what can be written.
    """
    parts = _parts(text)
    row: int | None = None
    conditions = []
    for name, sign, value in parts:
        if name == "row":
            if sign != "=" or not value.isdecimal() or row is not None:
                raise _wrong(text, "a row is row=0, row=1, …")
            row = int(value)
        else:
            conditions.append((name, sign, value))
    if len(conditions) != 1:
        raise _wrong(text, "one condition each")
    name, sign, value = conditions[0]
    if name in WORDS or name.upper() in INVARIANTS:
        if sign:
            raise _wrong(text, f"{name} takes no value")
        return Breakpoint(kind=name if name in WORDS else name.upper(), row=row)
    if name == "text":
        return Breakpoint(kind="text", text=_text(text, sign, value), row=row)
    if name not in ("accept", "realign", "round", "token"):
        raise _wrong(text, f"there is no condition '{name}'")
    return _numeric(text, name, sign, value, row)


def _parts(text: str) -> list[tuple[str, str, str]]:
    parts, place = [], 0
    stripped = text.strip()
    while place < len(stripped):
        found = _PART.match(stripped, place)
        if found is None:
            raise _wrong(text, f"'{stripped[place:]}' is not understood")
        parts.append((found[1], found[2] or "", found[3] or ""))
        place = found.end()
    return parts


def _numeric(text: str, name: str, sign: str, value: str, row: int | None) -> Breakpoint:
    if not sign:
        raise _wrong(text, f"{name} needs a value")
    if name in ("round", "token") and sign != "=":
        raise _wrong(text, f"{name} is compared with = only")
    if name in ("round", "realign") and row is not None:
        raise _wrong(text, f"{name} is not of a row")
    if name == "accept" and value == "K" and sign == "=":
        return Breakpoint(kind="accept", row=row)
    if not _NUMBER.fullmatch(value):
        raise _wrong(text, f"'{value}' is no number")
    percent = value.endswith("%")
    if percent != (name == "realign") or (not percent and not value.isdecimal()):
        share = "a share, as in realign>5%" if name == "realign" else "a whole number"
        raise _wrong(text, f"{name} is compared with {share}")
    number = float(value.rstrip("%")) / (100 if percent else 1)
    return Breakpoint(kind=name, sign=sign, number=number, row=row)


def _text(whole: str, sign: str, value: str) -> str:
    if sign != "=" or not value:
        raise _wrong(whole, 'a text is text="foo"')
    if value.startswith('"'):
        try:
            value = msgspec.json.decode(value.encode(), type=str)
        except msgspec.DecodeError as error:
            raise _wrong(whole, "the text in quotes is written as in JSON") from error
    if not value:
        raise _wrong(whole, "the text is empty")
    return value


def _wrong(text: str, reason: str) -> UserError:
    return UserError(f"breakpoint '{text}': {reason}; write one of {ALLOWED}")


def compare(found: float, sign: str, number: float) -> bool:
    """Whether `found sign number` holds."""
    if sign in ("=", ""):
        return found == number
    if sign.startswith("<"):
        return found < number or (sign == "<=" and found == number)
    return found > number or (sign == ">=" and found == number)


def hits_of_round(point: Breakpoint, record: RoundRecord) -> Iterator[Hit]:
    """Where a breakpoint that needs this round alone applies."""

    def hit(row: int | None = None, **found: Any) -> Hit:
        return Hit(breakpoint=point, lane=record.lane, round=record.round, row=row, **found)

    if point.kind == "round" and record.round == point.number:
        yield hit()
    elif point.kind == "fallback" and record.kind == "fallback":
        padded = tuple(row.row for row in record.rows)
        if point.row is None or point.row in padded:
            yield hit(point.row, padded=padded)
    elif point.kind == "realign" and record.seconds.total > 0:
        share = record.seconds.realign / record.seconds.total
        if compare(share, point.sign, point.number or 0.0):
            yield hit(share=share)
    elif point.kind in ("finish", "accept", "token"):
        for row in record.rows:
            if point.row in (None, row.row) and _applies(point, row):
                yield hit(row.row, entry=row)


def _applies(point: Breakpoint, row: RowRound) -> bool:
    if point.kind == "finish":
        return row.finish_reason is not None
    if point.kind == "token":
        return point.number in row.committed
    drafted = len(row.draft_token_ids)
    wanted = drafted if point.number is None else point.number
    return drafted > 0 and compare(row.accepted, point.sign, wanted)
