"""`batchspec-tui bench`: throughput, cost shares, scaling over batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.config.counted import counted
from engine.config.errors import UserError
from engine.config.settings import LIMITS
from tui.cli.loading import load, method_list, no_trace
from tui.cli.options import chosen, shared_options
from tui.cli.progress import ProgressLine
from tui.cli.tables import print_warning
from tui.session.results import STDOUT, write_json
from tui.view.sentences import warning_words

if TYPE_CHECKING:
    from engine.evaluation.bench import Benchmark, Entry

_WIDE = 96
"""Columns that the whole table needs; without them the spread is left out, and the time of
acceptance counts as rest."""
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
        largest = msgspec.structs.replace(options.settings, batch_size=max(batch_sizes))
        pair, prompts = load(options, line, [largest])
        small = [str(size) for size in batch_sizes if size > len(prompts)]
        if small:
            line.say(
                f"only {counted(len(prompts), 'prompt')}: B={', '.join(small)} "
                f"is measured with {counted(len(prompts), 'row')}"
            )
        from engine.evaluation.bench import bench as time_methods
        from engine.evaluation.verify import runnable_methods

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
        plain = msgspec.to_builtins(result)
        write_json(options.json, {"warning": warning_words(result.settings), **plain})
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
            f"{device['model']}, {counted(machine['cores'], 'core')}, "
            f"{counted(machine['threads'], 'thread')}, "
            f"{settings['device']} {settings['dtype']}, torch {versions['torch']}, "
            f"transformers {versions['transformers']}",
            style="dim",
        )
    )
    console.print(
        Text(
            f"{counted(result.prompts, 'prompt')}, {settings['max_new_tokens']} new tokens, "
            f"K={settings['draft_tokens']}, median of {result.repeats}; speedup against the padded "
            "autoregressive batch; ms: engine time outside the models, a round",
            style="dim",
        )
    )
    print_warning(console, warning_words(result.settings))
    console.print(_table(result.results, console.width))


def _table(entries: tuple[Entry, ...], width: int) -> Table:
    """Shares are of the decoding time."""
    wide = width >= _WIDE
    table = Table(box=None, pad_edge=False)
    names = ["B", "method", "tok/s", *(["spread"] if wide else []), "speedup", "accepted"]
    names += ["draft", "verify", *(["accept"] if wide else []), "realign", "rest", "ms"]
    for name in names:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    size = None
    for entry in entries:
        if size not in (None, entry.batch_size):
            table.add_section()
        size = entry.batch_size
        table.add_row(*_cells(entry, wide))
    return table


def _cells(entry: Entry, wide: bool) -> list[Text]:
    median, phases = entry.median, entry.median.seconds_by_phase
    total = phases.total or 1.0
    in_slots = entry.continuous and entry.method == "autoregressive"
    speedup = entry.speedup_vs_autoregressive
    low, high = entry.min.tokens_per_second, entry.max.tokens_per_second
    rest = phases.prefill + phases.schedule + (0.0 if wide else phases.accept)
    spread, accept = f"{low:.1f}…{high:.1f}", f"{phases.accept / total:.0%}"
    return [
        Text(str(entry.batch_size)),
        Text("  in slots" if in_slots else entry.method),
        Text(f"{median.tokens_per_second:.1f}"),
        *([Text(spread, style="dim")] if wide else []),
        Text(f"{speedup:.2f}", style="green" if speedup > 1.0 else ""),
        Text(f"{median.accepted_per_row_round:.2f}"),
        Text(f"{phases.draft / total:.0%}"),
        Text(f"{phases.verify / total:.0%}"),
        *([Text(accept)] if wide else []),
        Text(f"{phases.realign / total:.1%}"),
        Text(f"{rest / total:.0%}"),
        Text(f"{1e3 * median.engine_seconds_per_round:.2f}"),
    ]
