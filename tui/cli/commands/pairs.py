"""`batchspec-tui pairs`: which pairs there are, fetching and exporting them."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from engine.pairs import smollm2
from engine.pairs.registry import DRAFT_MODEL, PairRequest, all_pairs, resolve
from engine.pairs.state import state_of
from tui.cli.progress import ProgressLine
from tui.session.results import STDOUT, check_writable, write_json

SCHEMA = "batchspec/pairs/1"
_JSON = click.option(
    "--json", "path", type=click.Path(path_type=Path), metavar="PATH", help="- is stdout."
)
_QUIET = click.option("--quiet", is_flag=True, help="No progress.")


@click.group("pairs", invoke_without_command=True)
@click.pass_context
def pairs(ctx: click.Context) -> None:
    """List, fetch and export model pairs (without a command: list)."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(show, path=None)


@pairs.command("list")
@_JSON
def show(path: Path | None) -> None:
    """Every pair: the built-in ones, the paper's, and your own."""
    check_writable("--json", path)
    found = all_pairs()
    if path is not None:
        entries = [
            {**msgspec.to_builtins(spec), "state": state_of(spec)} for spec in found.values()
        ]
        write_json(path, {"schema": SCHEMA, "pairs": entries})
    if path != STDOUT:
        from rich.console import Console

        from tui.cli.tables import plain_table

        columns = ("pair", "target", "draft", "weights", "note")
        rows = [
            (spec.name, spec.target, spec.draft, state_of(spec), spec.note)
            for spec in found.values()
        ]
        Console(highlight=False).print(plain_table(columns, rows))


@pairs.command("fetch")
@click.argument("name")
@_QUIET
def fetch(name: str, quiet: bool) -> None:
    """Download (and convert) a pair's weights now, for later use without a network."""
    spec = resolve(PairRequest(name=name))
    with ProgressLine(quiet=quiet) as line:
        if spec.kind == "smollm2":
            places = [str(smollm2.acquire(line.stage))]
        elif spec.kind == "toy":
            places = ["nothing to fetch: it is built in memory"]
        else:
            from engine.pairs import hub

            places = [str(place) for place in hub.obtain_models(spec, line.stage, newest=True)]
    for place in places:
        click.echo(place)


@pairs.command("export")
@click.argument("name")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--dtype", default="float32", show_default=True, metavar="NAME", help="Of the weights."
)
@_QUIET
def export(name: str, directory: Path, dtype: str, quiet: bool) -> None:
    """Write DIRECTORY/target and DIRECTORY/draft as ordinary model directories."""
    request = PairRequest(name=name)
    if resolve(request).kind == "smollm2":
        request = PairRequest(
            name=name, draft=DRAFT_MODEL
        )  # the other one runs in this program alone
    with ProgressLine(quiet=quiet) as line:
        line.stage("loading torch", None)
        from engine.pairs.export import export_pair
        from engine.pairs.load import load_pair

        pair = load_pair(request, device="cpu", dtype=dtype, progress=line.stage)
        written = export_pair(pair, directory, line.stage)
    for place in written:
        click.echo(str(place))
