"""Prefill of rows that join: `prompt[:-1]`, straight into each row's own cells."""

from __future__ import annotations

import numpy as np
import torch

from engine.models.forward_input import Feed
from engine.models.kv_cache import Write
from engine.rounds.sequence import Sequence
from engine.rounds.side import Side


def prefill(side: Side, rows: list[Sequence], first_cells: dict[int, int]) -> None:
    """Compute the K/V of the rows' tokens but the last, left-aligned from `first_cells` on.

    The rows attend to nothing but their own block, so nothing is read from the cache.
    Rows of similar length go together, so that little is padded.

    Args:
        first_cells: flat index of each row's first cell, by request index.
    """
    for group in similar_lengths(rows):
        tokens = max(row.length for row in group) - 1
        if tokens == 0:
            continue
        ids = np.zeros((len(group), tokens), np.int64)
        for place, row in enumerate(group):
            ids[place, : row.length - 1] = row.tokens[:-1]
        positions = np.minimum(np.arange(tokens), side.model.context - 1)
        mask = np.tril(np.ones((tokens, tokens), bool))
        cells = np.array([[first_cells[row.index]] for row in group]) + np.arange(tokens)
        feed = Feed(
            ids=torch.from_numpy(ids),
            positions=torch.from_numpy(np.tile(positions, (len(group), 1))),
            mask=torch.from_numpy(np.tile(mask, (len(group), 1, 1, 1))),
            write=Write(rows=len(group), read=0, cells=torch.from_numpy(cells.reshape(-1))),
        )
        side.run(feed, cells=cells, keep=1)
        side.stamp()
        for place, row in enumerate(group):  # what lies beyond a row's prompt is nobody's
            side.store.forget(cells[place, row.length - 1 :])


def similar_lengths(rows: list[Sequence], waste: float = 1.25) -> list[list[Sequence]]:
    """Split rows so that none is padded to more than about `waste` times its length."""
    groups: list[list[Sequence]] = []
    for row in sorted(rows, key=lambda row: row.length):
        if groups and row.length <= waste * groups[-1][0].length + 8:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups
