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

from engine.config.errors import UserError
from engine.records.schema import Record
from engine.records.trace import read_trace
from tui.session.results import STDOUT, check_writable

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
@click.option("--svg", type=_FILE, metavar="FILE", help="The screen at a round, as a picture.")
@click.option("--round", "number", type=int, metavar="N", help="Of the picture. [default: last]")
@click.option(
    "--size", default="120x35", show_default=True, metavar="WxH", help="Of the picture, in cells."
)
@click.option("--theme", metavar="NAME", help="Of the picture.")
def export(
    trace: Path,
    chrome: Path | None,
    table: Path | None,
    svg: Path | None,
    number: int | None,
    size: str,
    theme: str | None,
) -> int:
    """Write a recorded run in the format of other programs.

    TRACE is what --trace wrote. Without torch, and without a model.
    """
    files = [path for path in (chrome, table, svg) if path is not None]
    if not files:
        raise UserError("nothing to write: give --chrome FILE, --csv FILE or --svg FILE")
    if len(set(files)) < len(files):
        raise UserError(f"{files[0]}: named for more than one kind of output")
    check_writable("--chrome", chrome)
    check_writable("--csv", table)
    check_writable("--svg", svg)
    cells = _cells(size)
    notices: list[str] = []
    if chrome is not None:
        _write_chrome(chrome, read_trace(trace, notices))
    if table is not None:
        from engine.records.export import write_rounds

        with _opened("--csv", table) as file:
            write_rounds(read_trace(trace, [] if notices else notices), file)
    if svg is not None:
        from tui.app.picture import picture

        found: list[str] = []
        image = picture((trace,), number, size=cells, theme=theme, notices=found)
        notices = notices or found
        with _opened("--svg", svg) as file:
            file.write(image)
    for notice in notices:
        click.echo(f"batchspec-tui: {notice}; what is there is exported", err=True)
    for path in files:
        if path != STDOUT:
            click.echo(f"batchspec-tui: written: {path}", err=True)
    return 0


def _cells(size: str) -> tuple[int, int]:
    """`120x35`. Raises UserError for anything else."""
    width, sign, height = size.partition("x")
    if not (sign and width.isdecimal() and height.isdecimal()):
        raise UserError(f"--size '{size}': write WIDTHxHEIGHT, as in 120x35")
    if not (20 <= int(width) <= 500 and 8 <= int(height) <= 200):
        raise UserError(f"--size {size}: from 20x8 to 500x200 cells")
    return int(width), int(height)


def _write_chrome(path: Path, records: Iterator[Record]) -> None:
    """An event a line, written as it comes: a long run needs no memory."""
    from engine.records.export import chrome_events

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
