"""A single run with the oracle beside it, for as long as somebody wants to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.alongside import Alongside
from engine.oracle import Oracle
from engine.records import Record, RoundRecord
from engine.run import Run


def judged(run: Run, wanted: Callable[[], bool], oracle: Callable[[], Oracle]) -> Iterator[Record]:
    """The records of a run, each round followed by what the oracle says of its rows.

    Args:
        wanted: asked after every round; the oracle catches up when it is wanted again.
        oracle: makes it, when it is wanted for the first time.
    """
    alongside: Alongside | None = None
    prompts = {prompt.index: len(prompt.ids) for prompt in run.prompts}
    for record in run.records():
        yield record
        if not isinstance(record, RoundRecord) or not wanted() or not run.settings.sampling.greedy:
            continue
        if alongside is None:
            alongside = Alongside(oracle(), run.prompts, run.settings, measure=False)
        lengths = {
            row: length - prompts[row] for row, length in run.lengths().items() if row in prompts
        }
        yield from alongside.reach({row: new for row, new in lengths.items() if new > 0})
