"""EXSPEC's schedule: a window of rows, batched by equal length (paper §4).

What the published code leaves undone is done here: groups smaller than B run when they
pay, no row is held back without bound, and nothing depends on how the others fare.
"""

from __future__ import annotations

import math

from engine.drafting.auto_k.costs import Costs
from engine.methods.exspec import Ragged
from engine.records.schema import PoolRow, RoundRecord
from engine.rounds.layout import Layout
from engine.rounds.schedule import Chosen, Schedule
from engine.rounds.sequence import Sequence


class Pool(Schedule):
    """Chooses among the W rows in view.

    1. A row that has waited `patience` rounds goes first, and the rows nearest to its
       length with it.
    2. Otherwise the largest group of rows of one length, if it fills the batch or pays.
    3. Otherwise a fallback: B rows of neighbouring lengths, padded for this round.
    """

    def __init__(
        self, queue: list[Sequence], layout: Layout, *, batch_size: int, window: int
    ) -> None:
        super().__init__(queue, layout, batch_size=batch_size, window=window)
        self.costs = Costs()
        self._drafted = 0.0

    @property
    def patience(self) -> int:
        """Rounds after which a waiting row goes first: four turns of a fair schedule."""
        return 4 * math.ceil(self.window / self.batch_size)

    def choose(self) -> Chosen | None:
        layout = self.layout
        assert isinstance(layout, Ragged)
        admit = self._take(self.window - len(layout.pool))
        pool = [*layout.pool, *admit]
        if not pool:
            return None
        by_length: dict[int, list[Sequence]] = {}
        for row in sorted(pool, key=lambda row: (-row.waited, row.index)):
            by_length.setdefault(row.length, []).append(row)
        waiting_longest = max(pool, key=lambda row: (row.waited, -row.index))
        group = max(by_length.values(), key=lambda g: (min(len(g), self.batch_size), g[0].waited))
        rows = group[: self.batch_size]
        starving = waiting_longest.waited >= self.patience
        if starving:
            group = by_length[waiting_longest.length]
            rows = group[: self.batch_size]
        neighbours = self._nearest(waiting_longest, pool)
        if len(rows) == len(neighbours) or self._pays(len(rows), len(neighbours)):
            why = f"group of {len(rows)} at length {rows[0].length}"
            kind = "grouped"
        else:
            rows, kind = neighbours, "fallback"
            spread = max(r.length for r in rows) - min(r.length for r in rows)
            why = f"fallback: largest group {len(group)}, padded by up to {spread}"
        if starving:
            why = f"row {waiting_longest.index} waited {waiting_longest.waited} rounds; " + why
        waiting = [row for row in pool if row not in rows]
        for row in waiting:
            row.waited += 1
        return Chosen(
            admit=admit,
            rows=rows,
            kind="grouped" if kind == "grouped" else "fallback",
            why={row.index: why for row in rows},
            pool=tuple(
                PoolRow(row=row.index, content=row.length, waited=row.waited) for row in waiting
            ),
        )

    def refills(self, rows: list[Sequence]) -> bool:
        assert isinstance(self.layout, Ragged)
        return bool(self.queue) or len(self.layout.pool) > len(rows)

    def observe(self, record: RoundRecord) -> None:
        self.costs.observe(record)
        self._drafted = sum(len(row.draft_token_ids) for row in record.rows) / len(record.rows)

    def _nearest(self, leader: Sequence, pool: list[Sequence]) -> list[Sequence]:
        """The B rows nearest to the leader's length: the least padding that it can have."""
        order = sorted(pool, key=lambda row: (abs(row.length - leader.length), -row.waited))
        order.remove(leader)
        return [leader, *order[: self.batch_size - 1]]

    def _pays(self, group: int, fallback: int) -> bool:
        """Whether a smaller group makes more tokens a second than a padded batch."""
        if not self.costs.known:
            return 2 * group > fallback
        small = self.costs.round(group, self._drafted, steps=1)
        large = self.costs.round(fallback, self._drafted, steps=1, padded=True)
        return group * large > fallback * small
