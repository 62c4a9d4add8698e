"""`batchspec-tui check`: another engine's tokens against the oracle."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.config.errors import UserError
from engine.config.settings import Settings
from engine.evaluation.check.outputs import Foreign, read_foreign
from engine.pairs.registry import DEFAULT_PAIR, LOOKUP, PairRequest, all_pairs, resolve
from engine.runs.worker import Progress
from tui.cli.commands.verify import NOT_HELD
from tui.cli.options import DraftTokens
from tui.cli.progress import ProgressLine
from tui.session.check import CheckSource, check_settings, checked
from tui.session.results import STDOUT, check_writable, write_json
from tui.view.check_words import cause_words, check_json
from tui.view.showable import showable
from tui.view.state.checked import Checked

if TYPE_CHECKING:
    from engine.evaluation.check.check import CheckResult
    from engine.text.tokenizer import Tokenizer

_FILE = click.Path(path_type=Path)
STYLES = {"numeric": "yellow", "stopped": "magenta", "past_end": "magenta", "unexplained": "dim"}


@click.command("check")
@click.argument("file", type=_FILE)
@click.option(
    "--model-pair", metavar="NAME", help=f"Its target is asked. [default: {DEFAULT_PAIR}]"
)
@click.option("--target", metavar="PATH_OR_ID", help="Any causal LM.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@click.option("--chat/--no-chat", default=None, help="For prompts given as text.")
@click.option("--max-new-tokens", type=int, help="How far to compare. [default: the longest row]")
@click.option(
    "--draft-tokens", type=DraftTokens(), metavar="N", help="K of the other engine. [default: 5]"
)
@click.option("--batch-size", type=int, help="B of the other engine. [default: 4]")
@click.option("--tolerance", type=float, help="Logits nearer than this are rounding. [measured]")
@click.option("--device", metavar="NAME", default="auto", show_default=True)
@click.option("--dtype", metavar="NAME", default="auto", show_default=True)
@click.option("--threads", type=click.IntRange(min=0), default=0, help="CPU threads. 0: torch's.")
@click.option(
    "--require",
    type=click.FloatRange(0, 1),
    metavar="RATE",
    help="Exit with status 3 when the exact rate (0 … 1) is below.",
)
@click.option("--json", "path", type=_FILE, metavar="PATH", help="- is stdout.")
@click.option("--quiet", is_flag=True, help="No progress, no tables.")
@click.option("--tui", is_flag=True, help="Show it in the app.")
@click.option("--theme", metavar="NAME", help="With --tui: a theme, built-in or your own.")
def check(
    file: Path,
    model_pair: str | None,
    target: str | None,
    limit: int | None,
    chat: bool | None,
    max_new_tokens: int | None,
    draft_tokens: int | str | None,
    batch_size: int | None,
    tolerance: float | None,
    device: str,
    dtype: str,
    threads: int,
    require: float | None,
    path: Path | None,
    quiet: bool,
    tui: bool,
    theme: str | None,
) -> int:
    """Compare what another engine wrote with greedy decoding of each row alone.

    FILE is a .jsonl with a row a line ('prompt_ids' or 'prompt', and 'output_ids'), a trace
    in the format of docs/trace.md, or what `run --json` wrote. Each row's first difference
    is shown with its likely cause, as far as that could be tested.
    """
    if target is not None and model_pair is not None:
        raise UserError("--target and --model-pair both name a target: give one of them")
    check_writable("--json", path)
    foreign = read_foreign(file, limit)
    named = foreign.pair if foreign.pair in all_pairs() else DEFAULT_PAIR
    request = PairRequest(name=model_pair or named, target=target, draft=LOOKUP)
    resolve(request)
    settings = check_settings(
        foreign,
        Settings(device=device, dtype=dtype, threads=threads),
        max_new_tokens=max_new_tokens,
        draft_tokens=draft_tokens,
        batch_size=batch_size,
    )
    if tui:
        return _show(file, foreign, request, settings, chat, tolerance, theme)
    with ProgressLine(quiet=quiet) as line:
        line.stage("loading torch", None)
        found = _check(foreign, request, settings, chat, tolerance, line.stage)
        result = found.result
        for notice in result.notices:
            line.say(notice)
        for row, why in result.errors.items():
            line.say(f"row {row}: {why}")
        status = 1 if result.errors else 0
        if require is not None and result.exact_rate < require:
            line.say(f"exact rate {result.exact_rate:.4f} is below the required {require:g}")
            status = NOT_HELD
    if path is not None:
        write_json(path, check_json(result))
    if not quiet and path != STDOUT:
        print_check(result, found.tokenizer, Console(highlight=False))
    return status


def _check(
    foreign: Foreign,
    request: PairRequest,
    settings: Settings,
    chat: bool | None,
    tolerance: float | None,
    progress: Progress,
) -> Checked:
    from engine.pairs.load import load_pair

    pair = load_pair(
        request,
        device=settings.device,
        dtype=settings.dtype,
        threads=settings.threads,
        progress=progress,
    )
    return checked(pair, foreign, settings, chat, progress, tolerance)


def _show(
    file: Path,
    foreign: Foreign,
    request: PairRequest,
    settings: Settings,
    chat: bool | None,
    tolerance: float | None,
    theme: str | None,
) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("no terminal: --tui needs one; without it the result is printed")
    from tui.app.check_app import show

    def check(_: Foreign, progress: Progress) -> Checked:
        progress("importing torch", None)
        return _check(foreign, request, settings, chat, tolerance, progress)

    return show(CheckSource(file, check), settings, theme=theme)


def print_check(result: CheckResult, tokenizer: Tokenizer, console: Console) -> None:
    """The rates, the causes, then each row's first difference."""
    cut = result.cut_at_eos
    line = Text(f"{result.exact} of {result.total} rows exact ({result.exact_rate:.1%})")
    line.stylize("green" if result.exact_rate == 1 else "red")
    line.append(f", partial {result.partial_rate:.1%}", style="default")
    if cut.exact != result.exact:
        line.append(f"; cut at eos {cut.exact_rate:.1%}, {cut.partial_rate:.1%}", style="default")
    console.print(line)
    console.print(
        Text(
            f"against {result.pair.target}, {result.settings['device']} "
            f"{result.settings['dtype']}, tolerance {result.tolerance:.3g}",
            style="dim",
        )
    )
    if not result.divergences:
        return
    counted = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in result.causes.items())
    console.print(Text(f"causes: {counted}\n"))
    table = Table(box=None, pad_edge=False)
    for name in ("row", "token", "expected", "got", "gap", "cause", "why"):
        right = name in ("row", "token", "gap")
        table.add_column(name, justify="right" if right else "left", overflow="fold")

    def piece(token: int | None) -> Text:
        if token is None:
            return Text("the end", style="dim")
        return Text(f"{showable(tokenizer.piece(token))!r}")

    for cause in result.divergences:
        gap = cause.oracle_gap
        name = f"{cause.cause.replace('_', ' ')} {cause.invariant or ''}".strip()
        table.add_row(
            str(cause.index),
            str(cause.position),
            piece(cause.expected),
            piece(cause.got),
            "–" if gap is None else f"{gap:.3g}",
            Text(name, style=STYLES.get(cause.cause, "bold red")),
            Text(showable(cause_words(cause))),
        )
    console.print(table)
