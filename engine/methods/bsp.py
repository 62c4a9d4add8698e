"""bsp, the masking approach: rejected tokens stay in the cache, and a mask hides them.

Prompts are padded on the right. Every round writes the same K + 1 columns for all rows,
and nothing ever moves: that is its charm. But the positions are left to the library,
which numbers the columns, holes and padding included, so from the first rejection on a
row's tokens are read at positions that skip (I2), and their K/V are not the row's (I3).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.config.errors import UserError
from engine.methods.hf_defaults import causal, default_positions
from engine.models.causal_lm import LanguageModel
from engine.models.forward_input import Feed
from engine.models.kv_cache import EMPTY, LedgerArray, Write
from engine.records.row import Span
from engine.records.schema import Prompt
from engine.rounds.draft_model import DraftTokens, ModelDraft
from engine.rounds.layout import Layout, Plan, Synchronised
from engine.rounds.ledger_spans import ledger_spans
from engine.rounds.method import Method
from engine.rounds.sampling import Sampler
from engine.rounds.sequence import Sequence
from engine.rounds.side import MaskArray, Side

GROWTH = 64
"""Columns by which the grid grows when it is full."""


class Holes(Layout):
    """Right-padded prompts, then K + 1 columns a round, of which the rejected are holes.

    The batch keeps its B rows to the end: a row that has its budget is no longer of
    interest, but goes on costing what it cost.

    Attributes:
        width: columns that were fed to the target; the newest token goes there next.
        columns: by request index, the columns of the row's committed tokens, all but the
            newest.
        drafted: columns that were fed to the draft.
        fresh: whether the first round is still to come: it has no draft tokens, for the
            target's own first token is what the draft starts from.
    """

    rectangular = False

    def __init__(self, target: LanguageModel, draft: LanguageModel | None, plan: Plan) -> None:
        if draft is None and plan.draft_tokens:
            raise UserError("bsp needs a draft model")
        super().__init__(target, draft, plan)

    def admit(self, rows: list[Sequence]) -> None:
        assert not self.rows, "a batch is run to its end before the next one begins"
        self.rows = list(rows)
        self._batch = list(rows)
        self.width = max(row.length for row in rows)
        self.columns = {row.index: np.arange(row.length - 1) for row in rows}
        self._prompts = np.array([row.length for row in rows])
        self.fresh = True
        for side in self.sides:
            side.store.clear(len(rows), self.width + self.room + GROWTH)
            side.valid = {row.index: row.length - 1 for row in rows}
        self._prefill(self.target, self.width - 1)
        if self.draft is not None and self.width <= self.draft.model.context:
            self._prefill(self.draft, self.width)
        self.drafted = self.width

    def _prefill(self, side: Side, tokens: int) -> None:
        if tokens == 0:
            return
        ids = np.array([[row.pad_id] * tokens for row in self._batch], np.int64)
        for place, row in enumerate(self._batch):
            have = min(row.length, tokens)
            ids[place, :have] = row.tokens[:have]
        mask = np.arange(tokens) < self._prompts[:, None]
        self._run(side, torch.from_numpy(ids), mask, 0, keep=1)
        side.stamp()

    # ---- the round -------------------------------------------------------------------

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
        places = [self.place(row) for row in self.rows]
        block = ids.new_zeros((len(self._batch), ids.shape[1]))
        block[places] = ids
        if self.fresh and side is self.target:
            logits = self._run_prompt_ends(block)
        else:
            start = self.width + 1 + offset
            mask = self._mask(start + ids.shape[1])
            logits = self._run(side, block, mask, start, keep=keep, ahead=offset >= 0)
        side.narrow(places)
        return logits[places]

    def _run(
        self,
        side: Side,
        ids: Tensor,
        mask: MaskArray,
        start: int,
        *,
        keep: int,
        ahead: bool = False,
    ) -> Tensor:
        """A forward as the library does it when it is given the 2-D mask alone."""
        rows, tokens = ids.shape
        columns = start + np.arange(tokens)
        cells = np.arange(rows)[:, None] * side.store.columns + columns
        positions = default_positions(side.model, start, tokens, mask)
        write = Write(rows=rows, read=start + tokens, start=start)
        attended = torch.from_numpy(causal(mask, start))[:, None]
        at = torch.from_numpy(positions)
        feed = Feed(ids, at, attended, write, ahead=ahead, columnwise=True)
        return side.run(feed, cells=cells, keep=keep)

    def _run_prompt_ends(self, ids: Tensor) -> Tensor:
        """The first round: each row's last prompt token, in its own column, gives the first
        new token of the row."""
        side, ends = self.target, self._prompts - 1
        cells = (np.arange(len(ends)) * side.store.columns + ends)[:, None]
        mask = np.arange(self.width) <= ends[:, None, None]
        write = Write(rows=len(ends), read=self.width, cells=torch.from_numpy(cells[:, 0]))
        positions = torch.from_numpy(ends[:, None].copy())
        feed = Feed(ids, positions, torch.from_numpy(mask)[:, None], write)
        return side.run(feed, cells=cells, keep=0)

    def _mask(self, width: int) -> MaskArray:
        """The 2-D mask: ones on the prompt, the accepted, the newest and the pending."""
        mask = np.zeros((len(self._batch), width), bool)
        mask[:, self.width :] = True
        for place, row in enumerate(self._batch):
            mask[place, self.columns[row.index]] = True
        return mask

    def synchronise(self) -> Synchronised:
        for side in self.sides:
            side.stamp()
        for row in self.rows:
            known = self.columns[row.index]
            new = self._newest(row) + np.arange(row.length - 1 - len(known))
            self.columns[row.index] = np.concatenate([known, new])
        if not self.fresh:
            self.width += self.target.last.positions.shape[1]
        self.fresh = False
        self._end_at_context()
        self.rows = [row for row in self.rows if row.running]
        if self.draft is not None:
            for row in self.rows:
                reached = int(np.searchsorted(self.columns[row.index], self.drafted))
                self.draft.valid[row.index] = reached
        self._make_room()
        return Synchronised({row.index: 0 for row in self.rows})

    def _end_at_context(self) -> None:
        """Column numbers are positions: the batch ends where the model has no more."""
        if self.width >= self.target.model.context:
            for row in self.rows:
                row.stop("context")

    def _make_room(self) -> None:
        needed = self.width + self.room + 1
        for side in self.sides:
            old = side.store.columns
            if not self.rows or needed <= old:
                continue
            source = np.full((len(self._batch), needed + GROWTH), EMPTY, np.int64)
            source[:, :old] = np.arange(len(self._batch) * old).reshape(-1, old)
            side.store.regrid(source)

    # ---- what others ask ---------------------------------------------------------------

    def place(self, row: Sequence) -> int:
        return self._batch.index(row)

    def padding(self, row: Sequence) -> int:
        return int(self._prompts.max() - self._prompts[self.place(row)])

    def length(self) -> int:
        return self.width if self.fresh else self.width + 1

    def content_cells(self, side: Side, row: Sequence, count: int) -> LedgerArray:
        return self.place(row) * side.store.columns + self.columns[row.index][:count]

    def fed_spans(self, row: Sequence, drafted: tuple[int, ...]) -> tuple[Span, ...]:
        width = self.width if self.fresh else self.width + 1 + len(drafted)
        return self._spans(row, self._newest(row), width, cached=True)

    def kept_spans(self, row: Sequence) -> tuple[Span, ...]:
        return self._spans(row, self.width, self.width + 1, cached=False)

    def _newest(self, row: Sequence) -> int:
        """The column in which the newest token is fed."""
        return int(self._prompts[self.place(row)]) - 1 if self.fresh else self.width

    def _spans(self, row: Sequence, newest: int, width: int, *, cached: bool) -> tuple[Span, ...]:
        place, store = self.place(row), self.target.store
        columns = np.append(self.columns[row.index], newest)
        attended = np.zeros(width, bool)
        attended[columns] = True
        attended[newest:] |= not self.fresh
        padding = np.zeros(width, bool)
        padding[self._prompts[place] : self._prompts.max()] = True
        return ledger_spans(
            store.ids[place, :width],
            store.positions[place, :width],
            tokens=row.tokens,
            columns=columns,
            padding=padding,
            attended=attended,
            cached=cached,
        )


class HolesDraft(ModelDraft):
    """The draft's cache is never cut back either: it is fed whatever the target was fed
    since, then the newest token, then each draft token in turn. K never shrinks."""

    def limit(self, row: Sequence, draft_tokens: int) -> int:
        return draft_tokens

    def draft_up_to(self, layout: Layout, counts: list[int], sampler: Sampler) -> DraftTokens:
        assert isinstance(layout, Holes)
        side = layout.draft
        assert side is not None
        steps = 0 if layout.fresh else max(counts)
        steps = min(steps, layout.target.model.context - layout.width - 1)
        steps = min(steps, self.context - layout.width)
        if steps <= 0:
            none = torch.zeros((len(layout.rows), 0), dtype=torch.int64)
            return DraftTokens(none, [0] * len(layout.rows))
        seen = layout.target.store.ids[:, layout.drafted : layout.width]
        places = [layout.place(row) for row in layout.rows]
        newest = layout.committed(1, side.model.device)
        past = torch.from_numpy(seen[places]).to(newest)
        block = torch.cat([past, newest], dim=1)
        logits = layout.feed(side, block, -block.shape[1], keep=1)[:, -1]
        tokens = []
        for step in range(steps):
            token, _ = sampler.draft(side.model, logits, layout.rows, step)
            tokens.append(token)
            if step + 1 < steps:
                logits = layout.feed(side, token[:, None], step)[:, -1]
        layout.drafted = layout.width + steps
        return DraftTokens(torch.stack(tokens, dim=1), [steps] * len(layout.rows))

    def learn(self, layout: Layout, row: Sequence, accepted: int, drafted: int) -> None:
        pass  # the layout counts what the draft has, column by column


class EndlessRow(Sequence):
    """A row whose eos ends nothing: an eos id is a token like any other, up to the budget.

    The published code cuts at eos when it compares, not when it decodes, so what follows
    is no fault of the batch (I5); whoever compares may cut as well.
    """

    def __init__(
        self,
        prompt: Prompt,
        *,
        budget: int,
        context: int,
        eos_ids: frozenset[int],
        pad_id: int = 0,
    ) -> None:
        super().__init__(prompt, budget=budget, context=context, eos_ids=frozenset(), pad_id=pad_id)


METHOD = Method(layout=Holes, drafter=HolesDraft, row=EndlessRow)
