"""`batchspec-tui export`: a recorded run for other programs."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click
import msgspec

from engine.errors import UserError
from engine.records import Record
from engine.trace import read_trace
from tui.results import STDOUT, check_writable

_FILE = click.Path(path_type=Path)


@click.command("export")
@click.argument("trace", type=_FILE)
@click.option(
    "--chrome",
    type=_FILE,
    metavar="FILE",
    help="The phases as trace events; opens in ui.perfetto.dev. - is stdout.",
)
@click.option(
    "--csv",
    "table",
    type=_FILE,
    metavar="FILE",
    help="The rounds as a table, a line for each row in each round. - is stdout.",
)
def export(trace: Path, chrome: Path | None, table: Path | None) -> int:
    """Write a recorded run in the format of other programs.

    TRACE is what --trace wrote. Without torch, and without a model.
    """
    if chrome is None and table is None:
        raise UserError("nothing to write: give --chrome FILE or --csv FILE, or both")
    if chrome == table:
        raise UserError("--chrome and --csv name the same file")
    check_writable("--chrome", chrome)
    check_writable("--csv", table)
    notices: list[str] = []
    if chrome is not None:
        _write_chrome(chrome, read_trace(trace, notices))
    if table is not None:
        from engine.export import write_rounds

        with _opened("--csv", table) as file:
            write_rounds(read_trace(trace, [] if notices else notices), file)
    for notice in notices:
        click.echo(f"batchspec-tui: {notice}; what comes before it is exported", err=True)
    return 0


def _write_chrome(path: Path, records: Iterator[Record]) -> None:
    """An event a line, written as it comes: a long run needs no memory."""
    from engine.export import chrome_events

    encoder = msgspec.json.Encoder()
    with _opened("--chrome", path) as file:
        before = '{"displayTimeUnit":"ms","traceEvents":[\n'
        for event in chrome_events(records):
            file.write(before + encoder.encode(event).decode())
            before = ",\n"
        file.write("\n]}\n" if before == ",\n" else before + "]}\n")


@contextmanager
def _opened(option: str, path: Path) -> Iterator[TextIO]:
    if path == STDOUT:
        out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
        try:
            yield out
        finally:
            out.flush()
            out.detach()
        return
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise UserError(f"{option} {path}: cannot be written: {error.strerror}") from error
