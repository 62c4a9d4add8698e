"""The command `batchspec-tui`: without a subcommand it is the app.

Nothing here or on the way to the first frame imports torch.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

import click
import msgspec

from engine.config.errors import BatchspecError, UserError
from engine.microscope.breakpoints import parse_breakpoint
from tui.cli.lazy import Lazy, LazyGroup
from tui.cli.old_names import current_names
from tui.cli.options import chosen, shared_options
from tui.session.results import STDOUT
from tui.view.sentences import warning_words

PROGRAM = "batchspec-tui"
INTERRUPTED = 130


def _version() -> str:
    try:
        return version(PROGRAM)
    except PackageNotFoundError:
        return "(not installed)"


class Commands(LazyGroup):
    """The subcommands, in the order of `--help`."""

    lazy = {  # noqa: RUF012 - never changed
        "run": Lazy("tui.cli.commands.run", "run", "The same run without a screen."),
        "verify": Lazy(
            "tui.cli.commands.verify", "verify", "Methods against the oracle, row by row."
        ),
        "bench": Lazy("tui.cli.commands.bench", "bench", "Throughput and costs of the methods."),
        "replay": Lazy(
            "tui.cli.commands.replay", "replay", "The app on a recorded run, or on two."
        ),
        "export": Lazy("tui.cli.commands.export", "export", "A recorded run for other programs."),
        "check": Lazy("tui.cli.commands.check", "check", "Another engine's tokens, row by row."),
        "pairs": Lazy("tui.cli.commands.pairs", "pairs", "List, fetch and export model pairs."),
        "doctor": Lazy("tui.cli.commands.doctor", "doctor", "Versions, devices, memory, weights."),
        "distill": Lazy(
            "tui.cli.commands.distill", "distill", "Make a draft for a target that has none."
        ),
        "ngram": Lazy("tui.cli.commands.ngram", "ngram", "Make a draft that costs nothing."),
    }


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(_version(), prog_name=PROGRAM)
@click.option("--paused", is_flag=True, help="Load, and wait for a key before the first round.")
@click.option("--tour", is_flag=True, help="The guided tour, on prompts and settings of its own.")
@click.option(
    "--break",
    "breaks",
    metavar="CONDITION",
    multiple=True,
    help="Pause where it applies: diverge, invariant, finish, accept=0, … Repeatable.",
)
@click.option("--theme", metavar="NAME", help="A theme, built-in or your own.")
@shared_options
@click.pass_context
def cli(ctx: click.Context, /, paused: bool, tour: bool, theme: str | None, **shared: Any) -> int:
    """A terminal microscope for batch speculative decoding.

    Without a command: the app, live on a model pair.
    """
    if ctx.invoked_subcommand is not None:
        _no_options_before(ctx)
        return 0
    breaks = tuple(parse_breakpoint(text) for text in shared.pop("breaks"))
    options = chosen(**shared)
    warning = warning_words(msgspec.to_builtins(options.settings))
    if warning and any(one.kind == "diverge" for one in breaks):
        raise UserError(f"--break diverge cannot apply: {warning}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(f"no terminal: the app needs one; use '{PROGRAM} run' without a screen")
    if options.json == STDOUT:
        raise UserError(f"the app cannot write to stdout: name a file, or use '{PROGRAM} run'")
    from tui.app.app import run_app
    from tui.session.request import AppRequest

    return run_app(
        AppRequest(
            pair=options.pair,
            settings=msgspec.structs.replace(options.settings, inspect=True),
            prompts=options.prompts,
            chat=options.chat,
            paused=paused,
            breaks=breaks,
            tour=tour,
            theme=theme,
            trace=options.trace,
            json=options.json,
        )
    )


def _no_options_before(ctx: click.Context) -> None:
    """`batchspec-tui --seed 1 run` would silently lose the seed."""
    for name in ctx.params:
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            command = ctx.invoked_subcommand
            raise UserError(f"give the options after the command: {PROGRAM} {command} [OPTIONS]")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: one line for every error, tracebacks to the log."""
    sys.exit(_status(arguments))


def _status(arguments: list[str] | None) -> int:
    try:
        words = current_names(sys.argv[1:] if arguments is None else arguments)
        status = cli.main(args=words, prog_name=PROGRAM, standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.NoSuchOption as error:
        return _say(_elsewhere(error), error.exit_code)
    except click.ClickException as error:
        return _say(error.format_message(), error.exit_code)
    except BatchspecError as error:
        return _say(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader has gone (`… | head`); keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        from tui.app.log import log_exception

        where = log_exception(error)
        hint = f"; the traceback is in {where}" if where else ""
        return _say(f"{type(error).__name__}: {error}{hint}", 1)
    return status if isinstance(status, int) else 0


def _elsewhere(error: click.NoSuchOption) -> str:
    """Whose option it is, where another command has it: better than one that sounds like it."""
    context, name = error.ctx, error.option_name
    if context is None:
        return error.format_message()
    commands = {"the app": cli, **{each: cli.get_command(context, each) for each in Commands.lazy}}
    owners = [
        owner
        for owner, command in commands.items()
        if command is not None
        and any(name in (*param.opts, *param.secondary_opts) for param in command.params)
    ]
    if not owners:
        return error.format_message()
    return f"{context.info_name} has no option {name}; it is one of: {', '.join(owners)}"


def _say(message: str, status: int) -> int:
    """One line on stderr, whatever the message contains."""
    line = " ".join(message.split())
    click.echo(f"{PROGRAM}: {line}", err=True)
    return status
