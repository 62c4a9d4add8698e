"""`batchspec-tui bench`: throughput, cost shares, scaling over batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.errors import UserError
from engine.settings import LIMITS
from tui.loading import load, method_list, no_trace
from tui.options import chosen, shared_options
from tui.progress import ProgressLine
from tui.results import STDOUT, write_json

if TYPE_CHECKING:
    from engine.bench import Benchmark, Entry

DEFAULT_SIZES = "1,4,8"
_LEAST, _MOST = LIMITS["batch_size"]


@click.command("bench")
@click.option("--methods", metavar="A,B,…", help="[default: every correct method, or --method]")
@click.option("--batch-sizes", "sizes", metavar="B,B,…", help="[default: 1,4,8, or --batch-size]")
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Runs of each method and batch size that count.",
)
@shared_options
@click.pass_context
def bench(
    ctx: click.Context, /, methods: str | None, sizes: str | None, repeats: int, **shared: Any
) -> int:
    """Time the methods against batched autoregressive decoding.

    The methods are interleaved, with one warm-up each; medians are shown with the smallest
    and the largest value.
    """
    options = chosen(**shared)
    no_trace(options, "bench")

    def given(name: str) -> bool:
        return ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT

    asked = method_list(methods, (options.settings.method,) if given("method") else ())
    if sizes is None:
        sizes = str(options.settings.batch_size) if given("batch_size") else DEFAULT_SIZES
    batch_sizes = batch_size_list(sizes)
    with ProgressLine(quiet=options.quiet) as line:
        line.stage("loading torch", None)
        from engine.bench import bench as time_methods
        from engine.verify import runnable_methods

        pair, prompts = load(options, line)
        result = time_methods(
            pair,
            options.settings,
            asked or runnable_methods(),
            prompts,
            batch_sizes=batch_sizes,
            repeats=repeats,
            progress=line.stage,
        )
    if options.json is not None:
        write_json(options.json, msgspec.to_builtins(result))
    if not options.quiet and options.json != STDOUT:
        print_benchmark(result, Console(highlight=False))
    return 0


def batch_size_list(text: str) -> tuple[int, ...]:
    """`1,4,8` as numbers, each once.

    Raises:
        UserError: a part that is no batch size.
    """
    sizes: list[int] = []
    for part in text.split(","):
        if not part.strip().isdecimal() or not _LEAST <= int(part) <= _MOST:
            raise UserError(
                f"--batch-sizes: '{part.strip()}' is no batch size ({_LEAST} … {_MOST})"
            )
        sizes.append(int(part))
    return tuple(dict.fromkeys(sizes))


def print_benchmark(result: Benchmark, console: Console) -> None:
    """The machine, and a line for each batch size and method."""
    settings, machine = result.settings, result.machine
    device = next(
        (d for d in machine["devices"] if str(settings["device"]).startswith(d["name"])),
        machine["devices"][0],
    )
    versions = machine["versions"]
    console.print(
        Text(
            f"{device['model']}, {machine['cores']} cores, {machine['threads']} threads, "
            f"{settings['device']} {settings['dtype']}, torch {versions['torch']}, "
            f"transformers {versions['transformers']}",
            style="dim",
        )
    )
    console.print(
        Text(
            f"{result.prompts} prompts, {settings['max_new_tokens']} new tokens, "
            f"median of {result.repeats} (smallest … largest)",
            style="dim",
        )
    )
    console.print(_table(result.results))


def _table(entries: tuple[Entry, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    names = ("B", "method", "K", "tok/s", "× auto", "accepted", "rounds", "draft", "verify")
    for name in (*names, "accept", "realign", "other", "engine ms/round"):
        table.add_column(name, justify="left" if name == "method" else "right")
    size = None
    for entry in entries:
        median, phases = entry.median, entry.median.seconds_by_phase
        total = phases.total or 1.0
        if size not in (None, entry.batch_size):
            table.add_row()
        name = entry.method + (" (slots)" if entry.continuous and entry.draft_tokens == 0 else "")
        speedup = entry.speedup_vs_autoregressive
        table.add_row(
            str(entry.batch_size),
            name,
            str(entry.draft_tokens),
            f"{median.tokens_per_second:.1f} "
            f"({entry.min.tokens_per_second:.1f} … {entry.max.tokens_per_second:.1f})",
            Text(f"{speedup:.2f}", style="green" if speedup > 1.0 else ""),
            f"{median.accepted_per_row_round:.2f}",
            f"{median.rounds:.0f}",
            *(
                f"{seconds / total:.1%}"
                for seconds in (phases.draft, phases.verify, phases.accept, phases.realign)
            ),
            f"{(phases.prefill + phases.schedule) / total:.1%}",
            f"{1e3 * median.engine_seconds_per_round:.2f}",
        )
        size = entry.batch_size
    return table
