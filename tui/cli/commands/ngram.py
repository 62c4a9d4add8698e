"""`batchspec-tui ngram`: a draft that costs nothing, from text that the target wrote."""

from __future__ import annotations

from pathlib import Path

import click

from engine.config.counted import counted
from engine.config.errors import UserError

ENDING = ".ngram.safetensors"


@click.command("ngram")
@click.option(
    "--data",
    "files",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="What the target wrote: token data (safetensors: tokens, offsets). Repeatable.",
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help=f"The table: NAME{ENDING}."
)
def ngram(files: tuple[Path, ...], out: Path) -> int:
    """Count a target's habitual n-grams, for --draft NAME.ngram.safetensors.

    A few hundred thousand tokens of the target's own answers make a useful table.
    """
    if not out.name.endswith(ENDING):
        raise UserError(f"--out must end in {ENDING}, not '{out.name}'")
    from engine.drafting.ngram_table import NgramTable, token_rows

    sequences = [row for file in files for row in token_rows(file)]
    table = NgramTable.count(sequences)
    if not len(table):
        raise UserError("no n-gram was written twice: give more of what the target wrote")
    tokens = sum(len(row) for row in sequences)
    table.save(out, {"tokens": str(tokens)})
    click.echo(f"{counted(len(table), 'n-gram')} from {counted(tokens, 'token')} in {out}")
    return 0
