"""`batchspec-tui verify`: output equivalence of methods against the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.config.counted import counted
from engine.config.errors import UserError
from tui.cli.loading import load, method_list, no_trace
from tui.cli.options import chosen, shared_options
from tui.cli.progress import ProgressLine
from tui.session.results import STDOUT, write_json
from tui.view.sentences import divergence_words, warning_words
from tui.view.showable import showable

if TYPE_CHECKING:
    from engine.evaluation.verify import MethodVerdict, Verification
    from engine.text.tokenizer import Tokenizer

NOT_HELD = 3
"""Exit status when a rate that was asked for was not reached."""
CAUSE_STYLES = {"numeric": "yellow", "desync": "bold red", "stopped": "magenta"}


@click.command("verify")
@click.option("--methods", metavar="A,B,…", help="[default: every correct method, or --method]")
@click.option(
    "--require",
    "required",
    metavar="NAME=RATE",
    multiple=True,
    help="Exit with status 3 when a method's exact rate (0 … 1) is below. Repeatable.",
)
@shared_options
@click.pass_context
def verify(
    ctx: click.Context, /, methods: str | None, required: tuple[str, ...], **shared: Any
) -> int:
    """Compare methods with the oracle: greedy decoding of each row alone.

    Every difference is labelled: numeric (rounding decided between two tokens), desync (an
    invariant broke) or stopped (the method ended the row early).
    """
    options = chosen(**shared)
    if not options.settings.sampling.greedy:
        raise UserError("equality of outputs is defined for greedy decoding: use --temperature 0")
    if warning := warning_words(msgspec.to_builtins(options.settings)):
        raise UserError(f"nothing can be verified: {warning}")
    no_trace(options, "verify")
    demands = [_demand(text) for text in required]
    named = ctx.get_parameter_source("method") is not click.core.ParameterSource.DEFAULT
    asked = method_list(methods, (options.settings.method,) if named else ())
    _check_demands(demands, asked)
    with ProgressLine(quiet=options.quiet) as line:
        pair, prompts = load(options, line)
        from engine.evaluation.verify import runnable_methods
        from engine.evaluation.verify import verify as compare

        chosen_methods = asked or runnable_methods()
        _check_demands(demands, chosen_methods)
        result = compare(pair, options.settings, chosen_methods, prompts, progress=line.stage)
        status = _status(result, demands, line)
    if options.json is not None:
        write_json(options.json, verification_json(result))
    if not options.quiet and options.json != STDOUT:
        print_verification(result, pair.tokenizer, Console(highlight=False))
    return status


FACTS = ("violation", "tolerance", "finish_reason", "error")
"""Of a divergence, what its `message` is made of: the JSON has that instead."""


def verification_json(result: Verification) -> dict[str, Any]:
    """The result as plain values: `batchspec/verify/1` of the contract."""
    plain: dict[str, Any] = msgspec.to_builtins(result, str_keys=True)
    for name, verdict in result.methods.items():
        for entry, found in zip(
            plain["methods"][name]["divergences"], verdict.divergences, strict=True
        ):
            for fact in FACTS:
                del entry[fact]
            entry["message"] = divergence_words(found)
    return plain


def print_verification(result: Verification, tokenizer: Tokenizer, console: Console) -> None:
    """The rates, then each difference and its cause."""
    settings = result.settings
    heading = (
        f"B={settings.get('batch_size')} K={settings.get('draft_tokens')}, "
        f"{settings.get('device')} {settings.get('dtype')}"
        f"{', strict' if settings.get('strict') else ''}, {counted(len(result.answers), 'row')}, "
        f"tolerance {result.tolerance:.3g}"
    )
    console.print(Text(heading, style="dim"))
    console.print(_rates(result))
    for name, verdict in result.methods.items():
        if verdict.divergences:
            console.print(Text(f"\n{name}", style="bold"))
            console.print(_divergences(verdict, tokenizer))


def _rates(result: Verification) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("method")
    names = ["exact", "rate", "partial", *CAUSE_STYLES, "accepted"]
    cuts = any(verdict.cut_at_eos for verdict in result.methods.values())
    for name in [*names, *(["cut at eos"] if cuts else [])]:
        table.add_column(name, justify="right", no_wrap=True)
    for name, verdict in result.methods.items():
        cut = verdict.cut_at_eos
        causes: list[str] = [divergence.cause for divergence in verdict.divergences]
        table.add_row(
            name,
            f"{verdict.exact} of {verdict.total}",
            Text(f"{verdict.exact_rate:.1%}", style="green" if verdict.exact_rate == 1 else "red"),
            f"{verdict.partial_rate:.1%}",
            *(
                Text(str(causes.count(cause)), style=style if causes.count(cause) else "dim")
                for cause, style in CAUSE_STYLES.items()
            ),
            f"{verdict.accepted_per_row_round:.2f}",
            *([f"{cut.exact_rate:.1%}, {cut.partial_rate:.1%}"] if cut else []),
        )
    return table


def _divergences(verdict: MethodVerdict, tokenizer: Tokenizer) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("row", "token", "expected", "got", "gap", "cause", "round", "why"):
        right = name in ("row", "token", "gap", "round")
        table.add_column(name, justify="right" if right else "left", overflow="fold")

    def piece(token: int | None) -> Text:
        if token is None:
            return Text("nothing", style="dim")
        return Text(f"{showable(tokenizer.piece(token))!r}")

    for divergence in verdict.divergences:
        gap = divergence.oracle_gap
        cause = f"{divergence.cause} {divergence.invariant or ''}".strip()
        table.add_row(
            str(divergence.index),
            str(divergence.position),
            piece(divergence.expected),
            piece(divergence.got),
            "–" if gap is None else f"{gap:.3g}",
            Text(cause, style=CAUSE_STYLES[divergence.cause]),
            "–" if divergence.round is None else str(divergence.round),
            Text(showable(divergence_words(divergence))),
        )
    return table


def _demand(text: str) -> tuple[str, float]:
    """`NAME=RATE`, checked.

    Raises:
        UserError: something else.
    """
    name, _, number = text.partition("=")
    try:
        rate = float(number)
    except ValueError:
        rate = -1.0
    if not name or not 0.0 <= rate <= 1.0:
        raise UserError(f"--require '{text}': write NAME=RATE with a rate from 0 to 1")
    return method_list(name, ())[0], rate


def _check_demands(demands: list[tuple[str, float]], methods: tuple[str, ...]) -> None:
    for name, _ in demands:
        if methods and name not in methods:
            raise UserError(f"--require {name}: this method is not run; add it to --methods")


def _status(result: Verification, demands: list[tuple[str, float]], line: ProgressLine) -> int:
    failed = {
        row: why for verdict in result.methods.values() for row, why in verdict.errors.items()
    }
    for row, why in failed.items():
        line.say(f"row {row}: {why}")
    status = 1 if failed else 0
    for name, rate in demands:
        reached = result.methods[name].exact_rate
        if reached < rate:
            line.say(f"{name}: exact rate {reached:.4f} is below the required {rate:g}")
            status = NOT_HELD
    return status
