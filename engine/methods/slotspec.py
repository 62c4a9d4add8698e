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
from torch.nn.functional import pad

from engine.models.causal_lm import LanguageModel
from engine.models.cuda_graphs import FixedShapes
from engine.models.forward_input import Feed
from engine.models.kv_cache import LedgerArray, Write
from engine.records.row import Span
from engine.rounds.layout import Layout, Plan, Synchronised, trailing_spans
from engine.rounds.method import Method
from engine.rounds.prefill import prefill
from engine.rounds.schedule import Continuous
from engine.rounds.sequence import Sequence
from engine.rounds.side import Side


class Slots(Layout):
    """B left-aligned slots in one preallocated cache, each as long as the longest row of the
    run may become, plus the block."""

    rectangular = False

    def __init__(self, target: LanguageModel, draft: LanguageModel | None, plan: Plan) -> None:
        super().__init__(target, draft, plan)
        self.slots = plan.batch_size
        # the last column is nobody's: cells before a row's beginning are written there
        self.columns = plan.columns + self.room + 1
        for side in self.sides:
            side.store.clear(self.slots, self.columns)
        if plan.graphs:
            self._fix_shapes()

    def _fix_shapes(self) -> None:
        """The target verifies K + 1 tokens; the draft catches up with two, and goes on with
        one at a time."""
        target, draft = self.target, self.draft
        blocks = [(self.room, 0)]
        target.fixed = FixedShapes(target.model, target.store, blocks, whole=self.strict)
        target.fixed.prepare()
        # a state that is carried from one forward to the next lies outside the buffers
        if draft is not None and not draft.model.carries_state:
            draft.fixed = FixedShapes(draft.model, draft.store, [(2, 1), (1, 0)])
            draft.fixed.prepare()

    def admit(self, rows: list[Sequence]) -> None:
        assert len(self.rows) + len(rows) <= self.slots
        first = len(self.rows)
        self.rows = [*self.rows, *rows]
        cells = {row.index: place * self.columns for place, row in enumerate(rows, first)}
        for side in self.sides:
            side.valid |= {row.index: side.prefilled(row) for row in rows}
            if self.strict and side is self.target:
                self._prefill_in_blocks(first)
            else:
                prefill(side, rows, cells)

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
        lengths = np.array([row.length for row in self.rows], np.int64)
        columns = lengths[:, None] + offset + np.arange(ids.shape[1])
        return self._run(side, ids, columns, counts, keep=keep, latest=latest, ahead=offset >= 0)

    def _run(
        self,
        side: Side,
        ids: Tensor,
        columns: LedgerArray,
        counts: list[int] | None,
        *,
        keep: int = 0,
        latest: bool = False,
        ahead: bool = False,
    ) -> Tensor:
        """Feed a block whose tokens are written to given columns, [rows, tokens].

        Columns below 0 are nobody's, and go to the last column of the slot. Under strict
        the target always runs over every slot, and reads every column of it. With graphs
        both models run over every slot, and read one of a few widths.
        """
        live = len(columns)
        strict = self.strict and side is self.target
        whole = strict or side.fixed is not None
        read = self.columns if strict else int(columns.max()) + 1
        if side.fixed is not None:
            read = side.fixed.read(read)
        if whole:
            tokens = columns.shape[1]
            empty = self.slots - live
            ids = pad(ids, (0, 0, 0, empty))
            columns = np.pad(columns, ((0, empty), (0, 0)), constant_values=-1)
            counts = [*(counts or [tokens] * live), *[0] * empty]
        rows = len(columns)
        mask = np.arange(read) <= np.maximum(columns, 0)[:, :, None]
        positions = np.clip(columns, 0, side.model.context - 1)
        columns = np.where(columns < 0, self.columns - 1, columns)
        cells = np.arange(rows)[:, None] * self.columns + columns
        write = Write(rows=rows, read=read, cells=torch.from_numpy(cells.reshape(-1)))
        block = Feed(
            ids=ids,
            positions=torch.from_numpy(positions),
            mask=torch.from_numpy(mask)[:, None],
            write=write,
            counts=counts,
            latest=latest,
            pack=not whole,
            ahead=ahead,
        )
        logits = side.run(block, cells=cells, keep=keep, fixed=whole)
        return logits[:live] if whole else logits

    def _prefill_in_blocks(self, first: int) -> None:
        """Prefill the rows from place `first` on in blocks of the one shape of strict mode."""
        joining = self.rows[first:]
        longest = max(row.length for row in joining) - 1
        for start in range(0, longest, self.room):
            ids = np.zeros((len(self.rows), self.room), np.int64)
            columns = np.full_like(ids, -1)
            counts = [0] * len(self.rows)
            for place, row in enumerate(joining, first):
                block = row.tokens[start : min(start + self.room, row.length - 1)]
                ids[place, : len(block)] = block
                columns[place, : len(block)] = start + np.arange(len(block))
                counts[place] = len(block)
            device = self.target.model.device
            self._run(self.target, torch.from_numpy(ids).to(device), columns, counts)
            self.target.stamp()

    def realigns(self, rows: list[Sequence]) -> bool:
        return False

    def synchronise(self) -> Synchronised:
        for side in self.sides:
            side.stamp()
        return Synchronised({row.index: 0 for row in self.rows})

    def compact(self) -> int:
        """Free the slots of rows that ended: the last live row moves into the hole."""
        moved = 0
        for row in [row for row in self.rows if not row.running]:
            hole, last = self.place(row), len(self.rows) - 1
            mover = self.rows[last]
            for side in self.sides:
                if row.error is not None:
                    side.store.zero_row(hole)
                if hole != last:
                    count = max(side.valid[mover.index], 1)
                    span = np.arange(count)
                    moved += side.store.copy_cells(
                        side.store, last * self.columns + span, hole * self.columns + span
                    )
                    side.store.forget(hole * self.columns + np.arange(count, self.columns))
                side.store.forget(last * self.columns + np.arange(self.columns))
                del side.valid[row.index]
            self.rows[hole] = mover
            self.rows.pop()
        return moved

    def padding(self, row: Sequence) -> int:
        return 0

    def length(self) -> int:
        return max((row.length for row in self.rows), default=0)

    def content_cells(self, side: Side, row: Sequence, count: int) -> LedgerArray:
        return self.place(row) * self.columns + np.arange(count)

    def fed_spans(self, row: Sequence, draft_token_ids: tuple[int, ...]) -> tuple[Span, ...]:
        spans = [Span(kind="content", length=row.length, first=0, position=0, attended=True)]
        if draft_token_ids:
            spans.append(
                Span(
                    kind="stale",
                    length=len(draft_token_ids),
                    tokens=draft_token_ids,
                    position=row.length,
                    attended=True,
                )
            )
        return (*spans, *self._tail(row, row.length + len(draft_token_ids)))

    def kept_spans(self, row: Sequence) -> tuple[Span, ...]:
        content = Span(kind="content", length=row.length, first=0, position=0, attended=True)
        return (content, *self._tail(row, row.length))

    def _tail(self, row: Sequence, start: int) -> tuple[Span, ...]:
        return trailing_spans(self.target.store.ids[self.place(row), :-1], start)


METHOD = Method(layout=Slots, schedule=Continuous)
