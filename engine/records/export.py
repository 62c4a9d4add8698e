"""A recorded run in the formats of other programs: Chrome's trace events, and a table.

Both read records and nothing else. The trace events open in Perfetto (ui.perfetto.dev)
and in chrome://tracing: a process for each run, its rounds as slices with their phases
inside, counters for acceptance and realignment, and a mark where an invariant breaks.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from engine.records.row import RowRound
from engine.records.schema import (
    ChangeRecord,
    Failure,
    OracleRecord,
    Phases,
    Record,
    RoundRecord,
    RunHeader,
    TickRecord,
)

ORDER = ("schedule", "prefill", "draft", "verify", "accept", "realign")
"""The phases in the order in which a round goes through them."""

COLUMNS = (
    "lane", "method", "round", "kind", "row", "place", "draft_tokens", "drafted", "accepted",
    "bonus", "committed", "before", "content", "padding", "delta", "kv_length",
    "draft_kv_length", "finish_reason", "why", "waited", "length", "prefill_seconds",
    "draft_seconds", "verify_seconds", "accept_seconds", "realign_seconds", "schedule_seconds",
    "elapsed", "realign_bytes", "staged_bytes", "violations", "proposal_ids", "committed_ids",
    "text",
)  # fmt: skip
"""The columns of the table. Those from `length` to `staged_bytes` but `violations` are the
round's, the same in each of its rows."""

Event = dict[str, Any]


def chrome_events(records: Iterable[Record]) -> Iterator[Event]:
    """Trace events, one at a time, for the list `traceEvents`."""
    tracks: dict[int, _Track] = {}
    for record in records:
        if isinstance(record, OracleRecord | TickRecord):
            continue
        if isinstance(record, RunHeader):
            again = record.lane in tracks
            number = sum(track.runs for track in tracks.values()) + 1
            runs = tracks[record.lane].runs + 1 if again else 1
            tracks[record.lane] = track = _Track(number, runs)
            yield from track.names(record)
            continue
        track = tracks.setdefault(record.lane, _Track(len(tracks) + 1, 1))
        if isinstance(record, RoundRecord):
            yield from track.round(record)
        elif isinstance(record, ChangeRecord):
            changed = [f"{name} = {record.settings.get(name)}" for name in record.changed]
            name = record.note or ", ".join(changed) or record.kind
            yield track.mark(f"change: {name}", "p", {"round": record.round})
        elif isinstance(record, Failure):
            yield track.mark(f"failure: {record.message}", "p", {"round": record.round})


class _Track:
    """One run on the time axis; times in microseconds."""

    def __init__(self, number: int, runs: int) -> None:
        self.runs = runs
        """How many runs the lane has had with this one."""
        self._number = number
        self._now = 0.0
        self._broken: set[tuple[str, int | None]] = set()

    def names(self, header: RunHeader) -> Iterator[Event]:
        settings = header.settings
        name = f"lane {header.lane}: {header.method}" if header.lanes > 1 else header.method
        label = f"B={settings.get('batch_size')} K={settings.get('draft_tokens')} "
        label += f"{settings.get('device')} {settings.get('dtype')}"
        yield self._event("M", name="process_name", args={"name": name})
        yield self._event("M", name="process_labels", args={"labels": label})
        yield self._event("M", name="process_sort_index", args={"sort_index": header.lane})
        yield self._event("M", name="thread_name", args={"name": "rounds"})

    def round(self, record: RoundRecord) -> Iterator[Event]:
        begin = max(self._now, 1e6 * (record.elapsed - record.seconds.total))
        edges = [begin]
        for phase in ORDER:
            edges.append(edges[-1] + 1e6 * getattr(record.seconds, phase))
        self._now = edges[-1]
        accepted = sum(row.accepted for row in record.rows)
        drafted = sum(len(row.draft_token_ids) for row in record.rows)
        committed = sum(len(row.committed) for row in record.rows)
        yield self._slice(
            f"round {record.round}",
            begin,
            self._now,
            {
                "kind": record.kind,
                "rows": [row.row for row in record.rows],
                "K": record.draft_tokens,
                "L": record.length,
                "accepted": [row.accepted for row in record.rows],
                "δ": [row.delta for row in record.rows],
            },
        )
        for phase, start, end in zip(ORDER, edges, edges[1:], strict=False):
            if end > start:
                yield self._slice(phase, start, end, {})
        counters = {
            "accepted": {"accepted": accepted, "rejected": drafted - accepted},
            "committed tokens": {"tokens": committed},
            "realign bytes": {"bytes": record.realign_bytes},
        }
        for name, values in counters.items():
            yield self._event("C", name=name, ts=round(begin, 3), args=values)
        for violation in record.violations:
            key = (violation.invariant, violation.row)
            if key not in self._broken:
                self._broken.add(key)
                who = "batch" if violation.row is None else f"row {violation.row}"
                name = f"{violation.invariant} {who}: {violation.kind or violation.note}"
                yield self.mark(name, "t", dict(violation.numbers))

    def mark(self, name: str, scope: str, args: Event) -> Event:
        return self._event("i", name=name, ts=round(self._now, 3), s=scope, args=args)

    def _slice(self, name: str, begin: float, end: float, args: Event) -> Event:
        start = round(begin, 3)
        return self._event("X", name=name, ts=start, dur=round(end - start, 3), args=args)

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"ph": kind, "pid": self._number, "tid": 1, "cat": "batchspec", **fields}


def write_rounds(records: Iterable[Record], file: TextIO) -> int:
    """Write the table of rounds, one line for each row in each round.

    Returns:
        How many lines there are, the head not counted.
    """
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    methods: dict[int, str] = {}
    lines = 0
    for record in records:
        if isinstance(record, RunHeader | ChangeRecord):
            methods[record.lane] = record.method or methods.get(record.lane, "")
        elif isinstance(record, RoundRecord):
            for row in record.rows:
                writer.writerow(_line(record, row, methods.get(record.lane, "")))
                lines += 1
    return lines


def _line(record: RoundRecord, row: RowRound, method: str) -> list[Any]:
    seconds: Phases = record.seconds
    names = {v.invariant for v in record.violations if v.row in (None, row.row)}
    return [
        record.lane,
        method,
        record.round,
        record.kind,
        row.row,
        row.place,
        record.draft_tokens,
        len(row.draft_token_ids),
        row.accepted,
        "" if row.bonus is None else row.bonus,
        len(row.committed),
        row.before,
        row.content,
        row.padding,
        row.delta,
        row.kv_length,
        row.draft_kv_length,
        row.finish_reason or "",
        row.note,
        row.waited,
        record.length,
        *(
            f"{getattr(seconds, name):.9g}"
            for name in ("prefill", "draft", "verify", "accept", "realign", "schedule")
        ),
        f"{record.elapsed:.9g}",
        record.realign_bytes,
        record.staged_bytes,
        " ".join(sorted(names)),
        " ".join(map(str, row.draft_token_ids)),
        " ".join(map(str, row.committed)),
        plain(row.text),
    ]


def plain(text: str) -> str:
    """Text in one line, without control characters: `\\n`, `\\x1b`."""
    escaped = text.replace("\\", "\\\\")
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in escaped
    )
