"""What another engine wrote: prompts and token ids from a file, to be checked.

Three kinds of files: a `.jsonl` with a row a line, a trace of docs/trace.md (ours or
another program's), and the result that `run --json` writes. Token ids are compared and
never text, since text that is encoded again may be other tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.config.errors import UserError
from engine.records.schema import RoundRecord, RunHeader, Summary
from engine.records.trace import read_trace
from engine.text.prompts import PromptEntry

ROW = '{"prompt_ids": […], "output_ids": […]}'
"""What a line looks like."""


class ForeignRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of another engine's output."""

    prompt: PromptEntry
    output_ids: tuple[int, ...]
    finish_reason: str = ""
    """How it ended, if the file says so: eos, length, …"""
    running: bool = False
    """Whether it had not ended where the file does: the trace was cut off, or the run broke."""

    @property
    def begun(self) -> bool:
        """Whether there is anything of it to be compared."""
        return bool(self.output_ids) or not self.running


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a file says."""

    rows: tuple[ForeignRow, ...]
    rounds: tuple[RoundRecord, ...] = ()
    """How the rows came about, where the file is a trace."""
    settings: dict[str, Any] = {}
    pair: str = ""
    """The pair, by name, where the file names one."""
    notices: tuple[str, ...] = ()

    @property
    def budget(self) -> int:
        """New tokens that the longest row has: as far as the oracle has to go."""
        return max((len(row.output_ids) for row in self.rows), default=0)


def read_foreign(path: Path, limit: int | None = None) -> Foreign:
    """Read a file of another engine's output.

    Raises:
        UserError: it is missing, or has a line that cannot be used; the message names it.
    """
    found = _trace(path) if _is_trace(path) else _rows(path)
    if not found.rows:
        raise UserError(f"{path}: no rows in it; write {ROW} on each line")
    if limit is not None and limit < len(found.rows):
        found = msgspec.structs.replace(found, rows=found.rows[:limit])
    return found


def _is_trace(path: Path) -> bool:
    if path.suffix == ".zst":
        return True
    try:
        with path.open("rb") as file:
            first = file.readline(1 << 24)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        record = msgspec.json.decode(first)
    except (msgspec.DecodeError, ValueError):
        return False
    return isinstance(record, dict) and record.get("type") == "header"


def _trace(path: Path) -> Foreign:
    """Rows from the committed tokens of a trace of one run."""
    header: RunHeader | None = None
    outputs: dict[int, list[int]] = {}
    reasons: dict[int, str] = {}
    rounds: list[RoundRecord] = []
    notices: list[str] = []
    starts: dict[int, int] = {}
    for record in read_trace(path, notices):
        if isinstance(record, RunHeader):
            if header is not None:
                raise UserError(f"{path}: {record.lanes} runs in one trace; check takes one")
            header = record
            starts = {prompt.index: len(prompt.ids) for prompt in record.prompts}
            outputs = {prompt.index: [] for prompt in record.prompts}
        elif isinstance(record, RoundRecord):
            rounds.append(record)
            for row in record.rows:
                output = outputs.setdefault(row.row, [])
                if row.before:  # not every engine tells it
                    del output[max(0, row.before - starts.get(row.row, row.before)) :]
                output += row.committed
                reasons[row.row] = row.finish_reason or ""
        elif isinstance(record, Summary):
            for row_summary in record.rows:
                outputs[row_summary.index] = list(row_summary.output_ids)
                reasons[row_summary.index] = row_summary.finish_reason
    assert header is not None, "a trace begins with a header"
    return Foreign(
        rows=tuple(
            ForeignRow(
                prompt=PromptEntry(text=prompt.text, ids=prompt.ids, category=prompt.category),
                output_ids=tuple(outputs[prompt.index]),
                finish_reason=reasons.get(prompt.index, ""),
                running=prompt.error is None and not reasons.get(prompt.index),
            )
            for prompt in header.prompts
        ),
        rounds=tuple(rounds),
        settings=dict(header.settings),
        pair=header.pair.name,
        notices=tuple(f"{notice}; what is there is checked" for notice in notices),
    )


def _rows(path: Path) -> Foreign:
    data = path.read_bytes()
    try:
        whole = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError):
        whole = None
    if isinstance(whole, dict) and isinstance(whole.get("rows"), list):
        rows = [_row(f"{path}, row {n}", row) for n, row in enumerate(whole["rows"])]
        settings = whole.get("settings")
        pair = whole.get("pair")
        return Foreign(
            rows=tuple(rows),
            settings=settings if isinstance(settings, dict) else {},
            pair=str(pair.get("name", "")) if isinstance(pair, dict) else "",
        )
    rows = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            rows.append(_row(where, msgspec.json.decode(line)))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{where}: not JSON: {error}") from error
    return Foreign(rows=tuple(rows))


def _row(where: str, row: Any) -> ForeignRow:
    if not isinstance(row, dict):
        raise UserError(f"{where}: not a JSON object; write {ROW}")
    if "output_ids" not in row:
        raise UserError(f"{where}: no 'output_ids' in it; write {ROW}")
    ids = _ids(where, row, "prompt_ids") if "prompt_ids" in row else None
    text = row.get("prompt", row.get("text", "") if ids is not None else None)
    if not isinstance(text, str):
        raise UserError(f"{where}: neither 'prompt_ids' nor a text 'prompt' in it; write {ROW}")
    reason = row.get("finish_reason")
    return ForeignRow(
        prompt=PromptEntry(text="" if ids is not None else text, ids=ids),
        output_ids=_ids(where, row, "output_ids"),
        finish_reason=reason if isinstance(reason, str) else "",
    )


def _ids(where: str, row: Mapping[str, Any], name: str) -> tuple[int, ...]:
    ids = row[name]
    if not isinstance(ids, list) or not all(type(one) is int and one >= 0 for one in ids):
        raise UserError(f"{where}: '{name}' must be a list of token ids, whole numbers from 0")
    return tuple(ids)
