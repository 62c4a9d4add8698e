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
    raise OutOfMemory(number, lengths, could_lower(run.settings))


def _counts(row: Sequence) -> tuple[int, int, int, int]:
    return row.length, row.rounds, row.accepted, row.drafted


def could_lower(settings: Settings) -> dict[str, int]:
    """The two settings that take most memory and can be lowered, with their present values."""
    window = settings.window if settings.method == "exspec" else 0
    tokens = settings.draft_tokens if settings.method != "autoregressive" else 0
    large = {
        name: value
        for name, value, least in (
            ("batch_size", settings.batch_size, 1),
            ("window", window, settings.batch_size),
            ("max_new_tokens", settings.max_new_tokens, 16),
            ("draft_tokens", tokens, 1),
        )
        if isinstance(value, int) and value > least
    }
    return dict(list(large.items())[:2])


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
            number, lengths, lower = error.round, error.lengths, error.lower
        else:
            return
        _let_go(run)
        run.restart(lengths=lengths, round=number)
        yield ChangeRecord(lane=run.lane, round=number, kind="memory", lower=dict(lower))
        records = run.remaining()


def _let_go(run: Run) -> None:
    """Give the caches' memory back, and that of the failed round."""
    with run.pair.lease:
        for store in run.loop.layout.stores:
            store.release()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
