"""The left-padded rectangle: all rows end at the same column (paper §3, EQSPEC).

Row i has padding p_i and content length c_i with p_i + c_i = L. After a round the rows
have grown by different amounts, so each is padded again, and its K/V move by
δ_i = p'_i − p_i: unpad, append, repad in a single gather.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.models.forward_input import Feed
from engine.models.kv_cache import EMPTY, SLACK, KVStore, LedgerArray, Write
from engine.records.row import Span
from engine.rounds.layout import Layout, Synchronised
from engine.rounds.method import Method
from engine.rounds.sequence import Sequence
from engine.rounds.side import MaskArray, Side


class Rectangle(Layout):
    """Left-padded rows of equal length. State: `rows`, and p_i = L − c_i."""

    paddings: dict[int, int]
    _length: int

    def admit(self, rows: list[Sequence]) -> None:
        assert not self.rows, "a rectangle takes a whole batch at a time"
        self.rows = list(rows)
        self._length = max(row.length for row in rows)
        self.paddings = {row.index: self._length - row.length for row in rows}
        for side in self.sides:
            side.store.clear(len(rows), self._length + self.room + SLACK)
            side.valid = {row.index: side.prefilled(row) for row in rows}
            if self._length > 1:
                block = self.committed(self._length, side.model.device)[:, :-1]
                self.feed(side, block, -self._length, keep=1)
                side.stamp()

    def feed(
        self,
        side: Side,
        ids: Tensor,
        offset: int,
        *,
        keep: int = 0,
        counts: list[int] | None = None,
        latest: bool = False,
    ) -> Tensor:
        rows, tokens = ids.shape
        start = self._length + offset
        columns = start + np.arange(tokens)
        mask = np.arange(start + tokens) <= columns[:, None]
        mask = mask & self.attended(side, start, ids)[:, None]
        mask |= np.arange(start + tokens) == columns[:, None]
        # a padding cell sees itself: no row is fully masked
        write = Write(rows=rows, read=start + tokens, start=start)
        positions = torch.from_numpy(self.block_positions(tokens, offset, side))
        store = self.grid(side)
        cells = np.arange(rows)[:, None] * store.columns + columns
        seen = torch.from_numpy(mask)[:, None]
        block = Feed(
            ids, positions, seen, write, counts, latest, pack=not self.strict, ahead=offset >= 0
        )
        return side.run(block, cells=cells, keep=keep, store=store)

    def grid(self, side: Side) -> KVStore:
        """The cache in which the rectangle lies."""
        return side.store

    def attended(self, side: Side, start: int, ids: Tensor) -> MaskArray:
        """Which columns a row may attend to at all, [rows, columns]: all but its padding.

        Args:
            start: first column of the block that is fed.
            ids: the block.
        """
        paddings = np.array([self.paddings[row.index] for row in self.rows])
        return np.arange(start + ids.shape[1]) >= paddings[:, None]

    def synchronise(self) -> Synchronised:
        old_places = {row.index: place for place, row in enumerate(self.rows)}
        staying = [row for row in self.rows if row.running]
        for side in self.sides:
            side.stamp()
        if not staying:
            self.rows = []
            return Synchronised({})
        new_length = max(row.length for row in staying)
        new_paddings = {row.index: new_length - row.length for row in staying}
        deltas = {i: new_paddings[i] - self.paddings[i] for i in new_paddings}
        needed = new_length + self.room
        move = len(staying) < len(self.rows) or any(deltas.values())
        moved = 0
        for side in self.sides:
            if not move and side.store.columns >= needed:
                continue
            columns = needed + SLACK
            source = np.full((len(staying), columns), EMPTY, np.int64)
            for place, row in enumerate(staying):
                old, new = self.moved(side, row, deltas[row.index])
                source[place, new] = old_places[row.index] * side.store.columns + old
            moved += side.store.regrid(source)
        self.rows, self.paddings, self._length = staying, new_paddings, new_length
        return Synchronised(deltas, moved)

    def moved(self, side: Side, row: Sequence, delta: int) -> tuple[LedgerArray, LedgerArray]:
        """Unpad and repad: the columns of a row's valid K/V, and the columns they move to."""
        old = self.paddings[row.index] + np.arange(side.valid[row.index])
        return old, old + delta

    def padding(self, row: Sequence) -> int:
        return self.paddings[row.index]

    def length(self) -> int:
        return self._length

    def content_cells(self, side: Side, row: Sequence, count: int) -> LedgerArray:
        first = self.place(row) * side.store.columns + self.paddings[row.index]
        return first + np.arange(count)

    def fed_spans(self, row: Sequence, draft_token_ids: tuple[int, ...]) -> tuple[Span, ...]:
        content = self.kept_spans(row)
        if not draft_token_ids:
            return content
        block = Span(
            kind="stale",
            length=len(draft_token_ids),
            tokens=draft_token_ids,
            position=row.length,
            attended=True,
        )
        return (*content, block)

    def kept_spans(self, row: Sequence) -> tuple[Span, ...]:
        padding = self.paddings[row.index]
        content = Span(kind="content", length=row.length, first=0, position=0, attended=True)
        if not padding:
            return (content,)
        return (Span(kind="pad", length=padding), content)


METHOD = Method(layout=Rectangle)
