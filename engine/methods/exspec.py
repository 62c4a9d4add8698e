"""Rows of different lengths, stacked only when they agree (paper §4, EXSPEC).

Every row of the pool has its K/V at home, unpadded. For a round the chosen rows are
brought together: rows of one length stack without padding (δ = 0), rows of different
lengths are padded to a rectangle as EQSPEC does, for this round only. What the round
wrote goes back home: K + 1 cells a row, never the whole cache.
"""

from __future__ import annotations

import numpy as np

from engine.methods.eqspec import SLACK, Rectangle
from engine.models.causal_lm import LanguageModel
from engine.models.kv_cache import EMPTY, KVStore, LedgerArray
from engine.records.schema import Span
from engine.rounds.layout import Settled, Side, beside
from engine.rounds.prefill import prefill
from engine.rounds.sequence import Sequence


class Ragged(Rectangle):
    """A pool of rows at home, and the rectangle in which the chosen ones meet.

    Args:
        homes: W, rows that the pool holds.
        columns: the longest that any row of the run may become.
    """

    rectangular = False
    aligned = True

    def __init__(
        self,
        target: LanguageModel,
        draft: LanguageModel | None,
        *,
        room: int,
        homes: int,
        columns: int,
        strict: bool = False,
    ) -> None:
        super().__init__(target, draft, room=room, strict=strict)
        self.pool: list[Sequence] = []
        self.paddings = {}
        self._length = 0
        self._free = list(range(homes))
        self._home: dict[int, int] = {}
        self._meeting = {id(side): KVStore() for side in self.sides}
        if self.draft is not None:
            beside(self.draft, self.grid(self.target), self.grid(self.draft))
        self._at_home: dict[tuple[int, int], int] = {}
        for side in self.sides:
            side.store.clear(homes, columns + 1)

    @property
    def stores(self) -> list[KVStore]:
        return [*super().stores, *self._meeting.values()]

    def admit(self, rows: list[Sequence]) -> None:
        for row in rows:
            self._home[row.index] = self._free.pop(0)
            self.pool.append(row)
        for side in self.sides:
            cells = {row.index: self._home[row.index] * side.store.columns for row in rows}
            side.valid |= {row.index: side.prefilled(row) for row in rows}
            prefill(side, rows, cells)

    def choose(self, rows: list[Sequence]) -> int:
        length = max(row.length for row in rows)
        paddings = {row.index: length - row.length for row in rows}
        # rows that met before and agree again are still stacked as they should be
        stands = rows == self.rows and paddings == self.paddings
        moved = 0
        for side in self.sides:
            for row in rows:
                self._at_home[(id(side), row.index)] = side.valid[row.index]
            grid = self.grid(side)
            if stands and grid.columns >= length + self.room:
                continue
            source = np.full((len(rows), length + self.room + SLACK), EMPTY, np.int64)
            for place, row in enumerate(rows):
                valid, padding = side.valid[row.index], paddings[row.index]
                source[place, padding : padding + valid] = self.content_cells(side, row, valid)
            moved += grid.gather(side.store, source)
        self.rows, self.paddings, self._length = list(rows), paddings, length
        return moved

    def settle(self) -> Settled:
        moved = 0
        for side in self.sides:
            side.stamp()
            grid, sources, targets = self.grid(side), [], []
            for place, row in enumerate(self.rows):
                if row.running:
                    new = np.arange(self._at_home[(id(side), row.index)], side.valid[row.index])
                    sources.append(place * grid.columns + self.paddings[row.index] + new)
                    targets.append(self._home[row.index] * side.store.columns + new)
            if sources:
                moved += side.store.copy_cells(
                    grid, np.concatenate(sources), np.concatenate(targets)
                )
        return Settled({row.index: self.paddings[row.index] for row in self.rows}, moved)

    def compact(self) -> int:
        for row in [row for row in self.pool if not row.running]:
            self.pool.remove(row)
            home = self._home.pop(row.index)
            self._free.append(home)
            for side in self.sides:
                side.store.forget(home * side.store.columns + np.arange(side.store.columns))
                if row.error is not None:
                    side.store.zero_row(home)
                    self.grid(side).zero_row(self.rows.index(row))
                del side.valid[row.index]
        return 0

    def grid(self, side: Side) -> KVStore:
        return self._meeting[id(side)]

    def content_cells(self, side: Side, row: Sequence, count: int) -> LedgerArray:
        return self._home[row.index] * side.store.columns + np.arange(count)

    def read_columns(self, row: Sequence, count: int) -> LedgerArray:
        return self.paddings[row.index] + np.arange(count)

    def kept_spans(self, row: Sequence) -> tuple[Span, ...]:
        return (Span(kind="content", length=row.length, first=0, position=0, attended=True),)
