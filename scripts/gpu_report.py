"""What the check found: a line a case, in a table."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from rich.table import Table

Line = dict[str, Any]
"""What is known of one case; `result` says in words what became of it."""


class Report:
    """What was found, a line a case; a case that fails, or has no time left, is a line too."""

    def __init__(self, minutes: float, recorded: bool) -> None:
        self.recorded = recorded
        """Whether fixed shapes are recorded as graphs; else they are computed."""
        self.lines: list[Line] = []
        self._began = time.monotonic()
        self._deadline = self._began + 60.0 * minutes

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def failed(self) -> bool:
        return any(line["result"].startswith(("FAILED", "WRONG")) for line in self.lines)

    def case(self, stage: str, work: Callable[[], Line], **facts: Any) -> Line:
        """One line of the table. Nothing that goes wrong in the work gets out of here."""
        line: Line = {"stage": stage, **facts}
        if facts.get("graphs"):
            line["recorded"] = self.recorded
        self.lines.append(line)
        if time.monotonic() > self._deadline:
            line["result"] = "skipped: out of time"
        else:
            try:
                line |= work()
            except Exception as error:  # the other cases are to run whatever it is
                why = (str(error).splitlines() or [""])[0][:100]
                line["result"] = f"FAILED: {type(error).__name__}: {why}"
                line["traceback"] = traceback.format_exc()
        print(f"{self.seconds:6.1f} s  {name_of(line)}: {line['result']}", file=sys.stderr)
        return line


def name_of(line: Line) -> str:
    """A case in words."""
    words = [line["stage"], f"B={line['batch_size']}" if "batch_size" in line else ""]
    return " ".join(filter(None, [*words, method_of(line)]))


def method_of(line: Line) -> str:
    alone = " K=0" if line.get("draft_tokens") == 0 else ""
    fixed = " + graphs" if line.get("recorded") else " in fixed shapes"
    return f"{line['method']}{alone}{fixed if line.get('graphs') else ''}"


def table(report: Report, title: str) -> Table:
    """A line a case."""
    shown = Table(title=title, box=None, pad_edge=False, title_justify="left")
    for name in ("stage", "B", "method", "exact", "numeric", "tok/s", "wall", "speedup"):
        shown.add_column(name, justify="left" if name in ("stage", "method") else "right")
    for name in ("accepted", "draft", "verify", "accept", "realign", "GB"):
        shown.add_column(name, justify="right")
    shown.add_column("result")
    for line in report.lines:
        shares = line.get("shares", {})
        shown.add_row(
            line["stage"],
            str(line.get("batch_size", "")),
            method_of(line),
            f"{line['exact']}/{line['total']}" if "exact" in line else "",
            _number(line, "numeric", "d"),
            _number(line, "tokens_per_second", ".1f"),
            _number(line, "wall_tokens_per_second", ".1f"),
            _number(line, "speedup", ".2f"),
            _number(line, "accepted", ".2f"),
            *(_number(shares, phase, ".1%") for phase in ("draft", "verify", "accept", "realign")),
            f"{line['peak_memory_bytes'] / 1e9:.1f}" if "peak_memory_bytes" in line else "",
            line["result"],
        )
    return shown


def _number(line: Line, name: str, how: str) -> str:
    return format(line[name], how) if name in line else ""
