"""Rows of different lengths, stacked only when they agree (paper §4, EXSPEC).

Every row in view has its K/V in the pool cache, unpadded. For a round the chosen rows are
gathered into a staging buffer: rows of one length stack without padding (δ = 0), rows of
different lengths are padded to a rectangle as EQSPEC does, for this round only. What the
round wrote goes back to the pool cache: K + 1 cells a row, never the whole cache.
"""

from __future__ import annotations

import math

import numpy as np

from engine.methods.eqspec import Rectangle
from engine.models.causal_lm import LanguageModel
from engine.models.kv_cache import EMPTY, SLACK, KVStore, LedgerArray
from engine.records.row import PoolRow, Span
from engine.rounds.layout import Layout, Plan, Synchronised
from engine.rounds.method import Method
from engine.rounds.prefill import prefill
from engine.rounds.schedule import Chosen, Schedule
from engine.rounds.sequence import Sequence
from engine.rounds.side import Side


class PoolLayout(Rectangle):
    """W rows in a pool cache, and the staging buffer in which the chosen ones are read."""

    rectangular = False
    aligned = True

    def __init__(self, target: LanguageModel, draft: LanguageModel | None, plan: Plan) -> None:
        super().__init__(target, draft, plan)
        self.pool: list[Sequence] = []
        self.paddings = {}
        self._length = 0
        self._free = list(range(plan.window))
        self._pool_place: dict[int, int] = {}
        self._staging = {id(side): KVStore() for side in self.sides}
        if self.draft is not None:
            grids = self.grid(self.target), self.grid(self.draft)
            self.draft.model.connect(target, *grids)
        self._pooled: dict[tuple[int, int], int] = {}
        """By side and request index, how many tokens the pool cache holds of a staged row."""
        for side in self.sides:
            side.store.clear(plan.window, plan.columns + 1)

    @property
    def stores(self) -> list[KVStore]:
        return [*super().stores, *self._staging.values()]

    def admit(self, rows: list[Sequence]) -> None:
        for row in rows:
            self._pool_place[row.index] = self._free.pop(0)
            self.pool.append(row)
        for side in self.sides:
            cells = {row.index: self._pool_place[row.index] * side.store.columns for row in rows}
            side.valid |= {row.index: side.prefilled(row) for row in rows}
            prefill(side, rows, cells)

    def realigns(self, rows: list[Sequence]) -> bool:
        return len({row.length for row in rows}) > 1

    def gather(self, rows: list[Sequence]) -> int:
        length = max(row.length for row in rows)
        paddings = {row.index: length - row.length for row in rows}
        # rows that were staged together and agree again are still stacked as they should be
        stands = rows == self.rows and paddings == self.paddings
        moved = 0
        for side in self.sides:
            for row in rows:
                self._pooled[(id(side), row.index)] = side.valid[row.index]
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

    def synchronise(self) -> Synchronised:
        moved = 0
        for side in self.sides:
            side.stamp()
            grid, sources, targets = self.grid(side), [], []
            for place, row in enumerate(self.rows):
                if row.running:
                    new = np.arange(self._pooled[(id(side), row.index)], side.valid[row.index])
                    sources.append(place * grid.columns + self.paddings[row.index] + new)
                    targets.append(self._pool_place[row.index] * side.store.columns + new)
            if sources:
                moved += side.store.copy_cells(
                    grid, np.concatenate(sources), np.concatenate(targets)
                )
        return Synchronised({row.index: self.paddings[row.index] for row in self.rows}, moved)

    def compact(self) -> int:
        for row in [row for row in self.pool if not row.running]:
            self.pool.remove(row)
            place = self._pool_place.pop(row.index)
            self._free.append(place)
            for side in self.sides:
                side.store.forget(place * side.store.columns + np.arange(side.store.columns))
                if row.error is not None:
                    side.store.zero_row(place)
                    self.grid(side).zero_row(self.rows.index(row))
                del side.valid[row.index]
        return 0

    def grid(self, side: Side) -> KVStore:
        return self._staging[id(side)]

    def content_cells(self, side: Side, row: Sequence, count: int) -> LedgerArray:
        return self._pool_place[row.index] * side.store.columns + np.arange(count)

    def read_columns(self, row: Sequence, count: int) -> LedgerArray:
        return self.paddings[row.index] + np.arange(count)

    def kept_spans(self, row: Sequence) -> tuple[Span, ...]:
        return (Span(kind="content", length=row.length, first=0, position=0, attended=True),)


class PoolSchedule(Schedule):
    """Chooses among the W rows in view.

    1. A row that has waited `patience` rounds goes first, and the rows nearest to its
       length with it.
    2. Otherwise the largest group of rows of one length, if it fills more than half a batch.
    3. Otherwise a fallback: B rows of neighbouring lengths, padded for this round.

    The published code waits for full groups only. Here smaller ones run too, no row is held
    back without bound, and nothing depends on how the others fare.
    """

    def __init__(
        self, queue: list[Sequence], layout: Layout, *, batch_size: int, window: int
    ) -> None:
        super().__init__(queue, layout, batch_size=batch_size, window=window)
        assert isinstance(layout, PoolLayout)
        self._pool = layout.pool

    @property
    def patience(self) -> int:
        """Rounds after which a waiting row goes first: four turns of a fair schedule."""
        return 4 * math.ceil(self.window / self.batch_size)

    def choose(self) -> Chosen | None:
        admit = self._take(self.window - len(self._pool))
        pool = [*self._pool, *admit]
        if not pool:
            return None
        by_length: dict[int, list[Sequence]] = {}
        for row in sorted(pool, key=lambda row: (-row.waited, row.index)):
            by_length.setdefault(row.length, []).append(row)
        first = max(pool, key=lambda row: (row.waited, -row.index))
        starving = first.waited >= self.patience
        largest = max(by_length.values(), key=lambda g: (min(len(g), self.batch_size), g[0].waited))
        group = by_length[first.length] if starving else largest
        rows = group[: self.batch_size]
        neighbours = self._nearest(first, pool)
        grouped = len(rows) == len(neighbours) or 2 * len(rows) > len(neighbours)
        if not grouped:
            rows = neighbours
        waiting = [row for row in pool if row not in rows]
        for row in waiting:
            row.waited += 1
        return Chosen(
            admit=admit,
            rows=rows,
            kind="grouped" if grouped else "fallback",
            starving=first.index if starving else None,
            largest_group=len(group),
            pool=tuple(
                PoolRow(row=row.index, content=row.length, waited=row.waited) for row in waiting
            ),
        )

    def _nearest(self, leader: Sequence, pool: list[Sequence]) -> list[Sequence]:
        """The B rows nearest to the leader's length: the least padding that it can have."""
        order = sorted(pool, key=lambda row: (abs(row.length - leader.length), -row.waited))
        order.remove(leader)
        return [leader, *order[: self.batch_size - 1]]


METHOD = Method(layout=PoolLayout, schedule=PoolSchedule)
