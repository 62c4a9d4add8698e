"""`batchspec-tui replay`: the app on a recorded trace, or two side by side."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from engine.config.errors import UserError
from engine.microscope.breakpoints import parse_breakpoint


@click.command("replay")
@click.argument("traces", metavar="TRACE [TRACE]", type=click.Path(path_type=Path), nargs=-1)
@click.option(
    "--break",
    "breaks",
    metavar="CONDITION",
    multiple=True,
    help="Playing stops where it applies: diverge, invariant, finish, accept=0, … Repeatable.",
)
@click.option("--theme", metavar="NAME", help="A theme, built-in or your own.")
def replay(traces: tuple[Path, ...], breaks: tuple[str, ...], theme: str | None) -> int:
    """Open a recorded run with every pane, or two of them side by side.

    A trace is what `--trace` wrote, or another program in the format of docs/trace.md; a
    name that ends in .zst is compressed. Two traces are aligned by round, and the first
    token of each row in which they differ is marked.
    """
    if not 1 <= len(traces) <= 2:
        raise UserError(f"replay opens one trace or two, not {len(traces)}")
    points = [parse_breakpoint(text) for text in breaks]
    from tui.app.replay_app import RecordedSource, show

    source = RecordedSource(traces)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("no terminal: replay needs one; `export` writes a trace as a table")
    return show(source, theme=theme, breaks=points)
