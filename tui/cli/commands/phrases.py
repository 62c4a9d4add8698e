"""`batchspec-tui phrases`: a draft that costs nothing, from text that the target wrote."""

from __future__ import annotations

from pathlib import Path

import click

from engine.config.counted import counted
from engine.config.errors import UserError

ENDING = ".phrases.safetensors"


@click.command("phrases")
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
def phrases(files: tuple[Path, ...], out: Path) -> int:
    """Count a target's habitual phrases, for --draft NAME.phrases.safetensors.

    A few hundred thousand tokens of the target's own answers make a useful table.
    """
    if not out.name.endswith(ENDING):
        raise UserError(f"--out must end in {ENDING}, not '{out.name}'")
    from engine.drafting.ngram_table import PhraseTable, token_rows

    sequences = [row for file in files for row in token_rows(file)]
    table = PhraseTable.count(sequences)
    if not len(table):
        raise UserError("no phrase was written twice: give more of what the target wrote")
    tokens = sum(len(row) for row in sequences)
    table.save(out, {"tokens": str(tokens)})
    click.echo(f"{counted(len(table), 'phrase')} from {counted(tokens, 'token')} in {out}")
    return 0
