"""`batchspec-tui run`: the same run without a screen."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

import click

from engine.config.errors import OUT_OF_MEMORY, BatchspecError, RunError, is_out_of_memory
from engine.records.schema import Failure, Record, RoundRecord, RunHeader, Summary
from engine.records.trace import TraceWriter
from tui.cli.loading import load
from tui.cli.options import Chosen, chosen, shared_options
from tui.cli.progress import ProgressLine
from tui.session.results import STDOUT, write_run

if TYPE_CHECKING:
    from engine.runs.run import Run

INTERRUPTED = 130


@click.command("run")
@shared_options
def run(**shared: Any) -> int:
    """Run a method on the prompts and print the texts and what they cost.

    Results go to stdout, progress to stderr. Ctrl-C prints what was generated so far.
    """
    options = chosen(**shared)
    with ProgressLine(quiet=options.quiet) as line:
        job = _prepare(options, line)
        status, header, summary = _generate(job, options, line)
    if options.json is not None:
        write_run(options.json, header, summary)
    if not options.quiet and options.json != STDOUT:
        from tui.cli.tables import print_run
        from tui.session.reproduce import command_line, prompt_words

        given = {name: shared[name] for name in ("texts", "file", "limit", "chat")}
        print_run(header, summary, again=command_line(header, prompt_words(**given)))
    return status


def _prepare(options: Chosen, line: ProgressLine) -> Run:
    pair, prompts = load(options, line)
    from engine.runs.run import Run

    return Run(pair, options.settings, prompts)


def _generate(job: Run, options: Chosen, line: ProgressLine) -> tuple[int, RunHeader, Summary]:
    """Run to the end, to an error, or to Ctrl-C; what was generated is kept in any case.

    Raises:
        BatchspecError: before there was anything to keep.
    """
    trace = TraceWriter(options.trace) if options.trace is not None else None
    header, status, rounds = job.header(), 0, 0
    finished: set[int] = set()
    with trace or nullcontext(), closing(_records(job)) as records:
        try:
            for record in records:
                if trace is not None:
                    trace.write(record)
                if isinstance(record, RoundRecord):
                    rounds += 1
                    finished |= {row.row for row in record.rows if row.finish_reason}
                    line.rounds(rounds, len(finished), len(job.prompts), job.totals())
                elif isinstance(record, Failure):
                    raise RunError(record.message)
        except KeyboardInterrupt:
            status = INTERRUPTED
        except Exception as error:
            if rounds == 0:
                raise
            line.say(_message(error))
            status = error.exit_code if isinstance(error, BatchspecError) else 1
            if trace is not None:
                trace.write(Failure(message=_message(error), round=rounds))
        summary = job.summary()
        if trace is not None and status == INTERRUPTED:
            trace.write(summary)
    if status == 0:
        status = _row_errors(summary, line)
    return status, header, summary


def _records(job: Run) -> Generator[Record, None, None]:
    """The run's records, as a generator that can be closed."""
    yield from job.records()


def _row_errors(summary: Summary, line: ProgressLine) -> int:
    failed = [row for row in summary.rows if row.error is not None]
    for row in failed:
        line.say(f"row {row.index}: {row.error}")
    return 1 if failed else 0


def _message(error: Exception) -> str:
    """One line for the user; the traceback of anything unforeseen goes to the log."""
    if isinstance(error, BatchspecError):
        return str(error)
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    from tui.app.log import log_exception

    where = log_exception(error)
    hint = f"; the traceback is in {where}" if where else ""
    return f"{type(error).__name__}: {error}{hint}"
