"""A slot for every row: no padding, no realignment (our own layout).

The slot's column j always holds content index j, so a row that accepts more than its
neighbours just writes further right, and rejected K/V are overwritten by the next
round's block. A mask `column ≤ position` hides whatever lies beyond. Rows join and
leave between rounds; live rows stay a prefix of the slots, so that reads are views.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.kv import EMPTY, LedgerArray, Write
from engine.layout.base import Layout, Settled, Side, trailing_spans
from engine.model import Feed, LanguageModel
from engine.records import Span
from engine.sequence import Sequence


class Slots(Layout):
    """Left-aligned slots in one preallocated cache.

    Args:
        slots: B, the number of slots.
        columns: the longest that any row of the run may become, plus the block.
    """

    rectangular = False

    def __init__(
        self,
        target: LanguageModel,
        draft: LanguageModel | None,
        *,
        room: int,
        slots: int,
        columns: int,
    ) -> None:
        super().__init__(target, draft, room=room)
        self.slots = slots
        # the last column is nobody's: cells before a row's beginning are written there
        self.columns = columns + room + 1
        for side in self.sides:
            side.store.clear(slots, self.columns)

    def admit(self, rows: list[Sequence]) -> None:
        assert len(self.rows) + len(rows) <= self.slots
        first = len(self.rows)
        self.rows = [*self.rows, *rows]
        for row in rows:
            for side in self.sides:
                side.valid[row.index] = row.length - 1
        for group in _similar_lengths(rows):
            for side in self.sides:
                self._prefill(side, group, {row.index: i for i, row in enumerate(rows, first)})

    def _prefill(self, side: Side, group: list[Sequence], places: dict[int, int]) -> None:
        tokens = max(row.length for row in group) - 1
        if tokens == 0:
            return
        ids = np.zeros((len(group), tokens), np.int64)
        for i, row in enumerate(group):
            ids[i, : row.length - 1] = row.tokens[:-1]
        positions = np.tile(np.arange(tokens), (len(group), 1))
        positions = np.minimum(positions, side.model.context - 1)
        mask = np.tril(np.ones((tokens, tokens), bool))[None, None].repeat(len(group), 0)
        starts = np.array([places[row.index] for row in group]) * self.columns
        cells = starts[:, None] + np.arange(tokens)
        # a row's tail beyond its own prompt is stale, and the mask hides it ever after
        write = Write(rows=len(group), read=0, cells=torch.from_numpy(cells.reshape(-1)))
        block = Feed(
            torch.from_numpy(ids), torch.from_numpy(positions), torch.from_numpy(mask), write
        )
        side.run(block, cells=cells, keep=1)
        side.stamp()

    def feed(
        self,
        side: Side,
        ids: Tensor,
        offset: int,
        *,
        keep: int = 0,
        counts: list[int] | None = None,
    ) -> Tensor:
        rows, tokens = ids.shape
        lengths = np.array([row.length for row in self.rows], np.int64)
        columns = lengths[:, None] + offset + np.arange(tokens)
        read = int(columns.max()) + 1
        mask = np.arange(read) <= np.maximum(columns, 0)[:, :, None]
        columns = np.where(columns < 0, self.columns - 1, columns)
        cells = np.arange(rows)[:, None] * self.columns + columns
        write = Write(rows=rows, read=read, cells=torch.from_numpy(cells.reshape(-1)))
        positions = torch.from_numpy(self.block_positions(tokens, offset, side))
        block = Feed(ids, positions, torch.from_numpy(mask)[:, None], write, counts)
        return side.run(block, cells=cells, keep=keep)

    def settle(self) -> Settled:
        for side in self.sides:
            side.stamp()
        return Settled({row.index: 0 for row in self.rows})

    def compact(self) -> None:
        """Free the slots of rows that ended: the last live row moves into the hole."""
        for row in [row for row in self.rows if not row.running]:
            hole, last = self.place(row), len(self.rows) - 1
            mover = self.rows[last]
            for side in self.sides:
                if row.error is not None:
                    side.store.zero_row(hole)
                if hole != last:
                    count = max(side.valid[mover.index], 1)
                    span = np.arange(count)
                    side.store.copy_cells(
                        side.store, last * self.columns + span, hole * self.columns + span
                    )
                    side.store.ids[hole, count:] = EMPTY
                side.store.ids[last] = EMPTY
                del side.valid[row.index]
            self.rows[hole] = mover
            self.rows.pop()

    def padding(self, row: Sequence) -> int:
        return 0

    def length(self) -> int:
        return max((row.length for row in self.rows), default=0)

    def content_cells(self, side: Side, row: Sequence, count: int) -> LedgerArray:
        return self.place(row) * self.columns + np.arange(count)

    def fed_spans(self, row: Sequence, proposals: tuple[int, ...]) -> tuple[Span, ...]:
        spans = [Span(kind="content", length=row.length, first=0, position=0, attended=True)]
        if proposals:
            spans.append(
                Span(
                    kind="stale",
                    length=len(proposals),
                    tokens=proposals,
                    position=row.length,
                    attended=True,
                )
            )
        return (*spans, *self._tail(row, row.length + len(proposals)))

    def kept_spans(self, row: Sequence) -> tuple[Span, ...]:
        content = Span(kind="content", length=row.length, first=0, position=0, attended=True)
        return (content, *self._tail(row, row.length))

    def _tail(self, row: Sequence, start: int) -> tuple[Span, ...]:
        return trailing_spans(self.target.store.ids[self.place(row), :-1], start)


def _similar_lengths(rows: list[Sequence], waste: float = 1.25) -> list[list[Sequence]]:
    """Split joining rows so that no prefill is padded to more than `waste` times a row."""
    groups: list[list[Sequence]] = []
    for row in sorted(rows, key=lambda row: row.length):
        if groups and row.length <= waste * groups[-1][0].length + 8:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups
