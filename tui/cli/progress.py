"""Progress on stderr: one line that is redrawn on a terminal, a line a stage elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType

import click

from engine.records.schema import Totals

_REDRAW = 0.1
"""Seconds between two drawings."""


class ProgressLine:
    """Shows what is going on until the block ends; with `quiet`, only messages."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._drawn = 0
        self._last_stage = ""
        self._last_time = 0.0

    def stage(self, stage: str, fraction: float | None) -> None:
        """A stage of loading, and how much of it is done."""
        new = stage != self._last_stage
        self._last_stage = stage
        if self._quiet or not (new or self._due()):
            return
        if self._terminal:
            self._draw(stage if fraction is None else f"{stage} {100 * fraction:.0f} %")
        elif new:
            click.echo(stage, err=True)

    def rounds(self, rounds: int, finished: int, rows: int, totals: Totals) -> None:
        """How far the run is."""
        if self._quiet or not self._terminal or not self._due():
            return
        self._draw(
            f"round {rounds} · {finished} of {rows} rows finished · "
            f"{totals.output_tokens} tokens · {totals.tokens_per_second:.1f} tok/s · "
            f"accepted {totals.accepted_per_row_round:.2f} a round"
        )

    def say(self, message: str) -> None:
        """A line that stays."""
        self.clear()
        click.echo(f"batchspec-tui: {' '.join(message.split())}", err=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._drawn:
            sys.stderr.write("\r" + " " * self._drawn + "\r")
            sys.stderr.flush()
            self._drawn = 0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.clear()

    def _due(self) -> bool:
        return time.monotonic() - self._last_time >= _REDRAW

    def _draw(self, text: str) -> None:
        self._last_time = time.monotonic()
        text = text[: shutil.get_terminal_size().columns - 1]
        sys.stderr.write("\r" + text.ljust(self._drawn))
        sys.stderr.flush()
        self._drawn = len(text)
