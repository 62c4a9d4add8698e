"""A single run with the oracle beside it, for as long as somebody wants to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.evaluation.live_oracle import LiveOracle
from engine.evaluation.oracle import Oracle
from engine.records.schema import Record, RoundRecord
from engine.runs.run import Run


def with_oracle(
    run: Run, records: Iterator[Record], wanted: Callable[[], bool], oracle: Callable[[], Oracle]
) -> Iterator[Record]:
    """The records of a run, each round followed by what the oracle says of its rows.

    The run may be changed on the way: prompts that join are compared too, and under another
    budget the answers are asked for anew.

    Args:
        records: the run's, from its beginning or from where it goes on.
        wanted: asked after every round; the oracle catches up when it is wanted again.
        oracle: makes it, when it is wanted for the first time.
    """
    live_oracle: LiveOracle | None = None
    asked: object = None
    for record in records:
        yield record
        settings = run.settings
        if not isinstance(record, RoundRecord) or not wanted() or not settings.sampling.greedy:
            continue
        matters = (run.prompts, settings) if settings.strict else settings.max_new_tokens
        if live_oracle is None or asked != matters:
            asked = matters
            live_oracle = LiveOracle(oracle(), run.prompts, settings, measure=False)
        live_oracle.join(run.prompts)
        starts = {prompt.index: len(prompt.ids) for prompt in run.prompts}
        lengths = {row: length - starts[row] for row, length in run.lengths().items()}
        yield from live_oracle.reach({row: new for row, new in lengths.items() if new > 0})
