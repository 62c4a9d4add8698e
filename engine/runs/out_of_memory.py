"""Memory that runs out in the middle of a run: nothing is lost, and the run can go on.

A round that cannot be finished leaves no trace: the rows go back to where they stood, the
caches are let go, and the next round begins from the committed tokens alone, under smaller
settings if somebody lowers them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from engine.config.errors import OutOfMemory, is_out_of_memory
from engine.config.settings import Settings
from engine.records.schema import ChangeRecord, Record, RoundRecord
from engine.rounds.sequence import Sequence

if TYPE_CHECKING:
    from engine.runs.run import Run


def attempt(run: Run) -> RoundRecord | None:
    """The next round of a run; None when every row has ended.

    Raises:
        OutOfMemory: there is no memory for it.
    """
    before, number = [_counts(row) for row in run.rows], run.loop.round
    try:
        return run.loop.step()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    # outside of the handler: the error's traceback would keep the round's tensors alive
    lengths = {}
    for row, (length, *counted) in zip(run.rows, before, strict=True):
        row.rounds, row.accepted, row.drafted = counted
        if row.length != length:
            lengths[row.index] = length
    said = f"out of memory in round {number + 1}: {advice(run.settings)}"
    raise OutOfMemory(said, number, lengths)


def _counts(row: Sequence) -> tuple[int, int, int, int]:
    return row.length, row.rounds, row.accepted, row.drafted


def advice(settings: Settings) -> str:
    """Which settings are to be lowered, and from what: "lower --batch-size (8) or …"."""
    window = settings.window if settings.method == "exspec" else 0
    tokens = settings.draft_tokens if settings.method != "autoregressive" else 0
    large = [
        f"--{name} ({value})"
        for name, value, least in (
            ("batch-size", settings.batch_size, 1),
            ("window", window, settings.batch_size),
            ("max-new-tokens", settings.max_new_tokens, 16),
            ("draft-tokens", tokens, 1),
        )
        if isinstance(value, int) and value > least
    ]
    if not large:
        return "take a smaller model or dtype"
    return "lower " + " or ".join(large[:2])


def holding(run: Run, records: Iterator[Record]) -> Iterator[Record]:
    """The records of a run that holds when memory runs out, where it would have ended.

    A record that says so comes in the failed round's place. Whoever asks for more tries that
    round again, under the settings that the run has by then.

    Args:
        records: the run's, from its beginning or from where it goes on.
    """
    while True:
        try:
            yield from records
        except OutOfMemory as error:
            said, number, lengths = str(error), error.round, error.lengths
        else:
            return
        _let_go(run)
        run.restart(lengths=lengths, round=number)
        yield ChangeRecord(lane=run.lane, round=number, what=said, held=True)
        records = run.remaining()


def _let_go(run: Run) -> None:
    """Give the caches' memory back, and that of the failed round."""
    with run.pair.lease:
        for store in run.loop.layout.stores:
            store.release()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
