"""A run that holds when memory runs out, where it would have ended.

The rows go back to where they stood, the caches are given back, and the next round begins from
the committed tokens alone, under smaller settings if somebody lowers them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from engine.config.errors import OutOfMemory
from engine.records.schema import ChangeRecord, Record
from engine.runs.run import Run


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
