"""The wrong behaviour of each fault (`engine.config.faults`), at one seam of eqspec.

Each class does one thing wrong and everything else as eqspec does. Nothing here reports
a broken invariant; the records are read from the ledger, so they show what there is.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from engine.methods.eqspec import Rectangle
from engine.models.kv_cache import EMPTY, SLACK, LedgerArray
from engine.records.row import Span
from engine.rounds.acceptance import Acceptance, Verdict
from engine.rounds.draft_model import DraftTokens
from engine.rounds.layout import Synchronised
from engine.rounds.ledger_spans import ledger_spans
from engine.rounds.packed_logits import Logits
from engine.rounds.sampling import Sampler
from engine.rounds.sequence import Sequence
from engine.rounds.side import MaskArray, Side


class LedgerRectangle(Rectangle):
    """A rectangle whose cells are described by what was written to them."""

    def visible(self, row: Sequence, width: int) -> MaskArray:
        """Which of the first `width` columns a row may attend to."""
        mask: MaskArray = np.arange(width) >= self.paddings[row.index]
        return mask

    def attended(self, side: Side, start: int, ids: Tensor) -> MaskArray:
        return np.stack([self.visible(row, start + ids.shape[1]) for row in self.rows])

    def columns_of(self, row: Sequence) -> LedgerArray:
        """The column of each committed token of a row."""
        return self.paddings[row.index] + np.arange(row.length)

    def content_cells(self, side: Side, row: Sequence, count: int) -> LedgerArray:
        return self.place(row) * side.store.columns + self.columns_of(row)[:count]

    def fed_spans(self, row: Sequence, drafted: tuple[int, ...]) -> tuple[Span, ...]:
        width = self.length() + len(drafted)
        attended = self.target.last.masks[self.place(row), 0, len(drafted), :width]
        return self._spans(row, attended, cached=True)

    def kept_spans(self, row: Sequence) -> tuple[Span, ...]:
        return self._spans(row, self.visible(row, self.length()), cached=False)

    def _spans(self, row: Sequence, attended: MaskArray, *, cached: bool) -> tuple[Span, ...]:
        place, width, store = self.place(row), len(attended), self.target.store
        return ledger_spans(
            store.ids[place, :width],
            store.positions[place, :width],
            tokens=row.tokens,
            columns=self.columns_of(row),
            padding=np.arange(width) < self.paddings[row.index],
            attended=attended,
            cached=cached,
        )


class ColumnPositions(LedgerRectangle):
    """positions-not-rebuilt: the positions are the columns."""

    def block_positions(self, tokens: int, offset: int, side: Side) -> LedgerArray:
        columns = self.length() + offset + np.arange(tokens)
        return np.tile(np.clip(columns, 0, side.model.context - 1), (len(self.rows), 1))


class UnmovedCache(LedgerRectangle):
    """kv-not-realigned: the K/V stay in the columns in which they are."""

    def moved(self, side: Side, row: Sequence, delta: int) -> tuple[LedgerArray, LedgerArray]:
        old, _ = super().moved(side, row, delta)
        here = old[old < self.paddings[row.index] + delta + row.length + self.room]
        return here, here

    def synchronise(self) -> Synchronised:
        rows = len(self.rows)
        done = super().synchronise()
        # Cells that stay in their columns are not moved; those of a later place are, when
        # a row has left.
        return replace(done, moved_bytes=0) if len(self.rows) == rows else done


class CausalMask(LedgerRectangle):
    """padding-not-masked: every column is text."""

    def visible(self, row: Sequence, width: int) -> MaskArray:
        return np.ones(width, bool)


class PadIdMask(LedgerRectangle):
    """pad-by-token-id: every cell that holds the pad id is padding."""

    def attended(self, side: Side, start: int, ids: Tensor) -> MaskArray:
        side.stamp()
        before = side.store.ids[: len(self.rows), :start]
        held = np.concatenate([before, ids.cpu().numpy()], axis=1)
        pads = np.array([row.pad_id for row in self.rows])[:, None]
        mask: MaskArray = super().attended(side, start, ids) & (held != pads)
        return mask

    def visible(self, row: Sequence, width: int) -> MaskArray:
        mask = super().visible(row, width)
        columns = self.columns_of(row)
        pads = columns[row.tokens == row.pad_id]
        mask[pads[pads < width]] = False
        return mask


class UncutCache(LedgerRectangle):
    """rejected-kv-kept: the block stays as it was written, whatever was accepted.

    Attributes:
        own: by request index, the columns (counted from the end of the padding) of the
            committed tokens but the newest.
    """

    own: dict[int, LedgerArray]

    def admit(self, rows: list[Sequence]) -> None:
        self.own = {row.index: np.arange(row.length - 1) for row in rows}
        super().admit(rows)

    def columns_of(self, row: Sequence) -> LedgerArray:
        padding = self.paddings[row.index]
        return np.append(self.own[row.index] + padding, self.length() - 1)

    def stale(self, row: Sequence) -> int:
        return self.length() - self.paddings[row.index] - row.length

    def synchronise(self) -> Synchronised:
        for side in self.sides:
            side.stamp()
        for row in self.rows:
            known = self.own[row.index]
            newest = self.length() - 1 - self.paddings[row.index]
            new = newest + np.arange(row.length - 1 - len(known))
            self.own[row.index] = np.concatenate([known, new])
        places = [place for place, row in enumerate(self.rows) if row.running]
        staying = [self.rows[place] for place in places]
        if not staying:
            self.rows = []
            return Synchronised({})
        shift = min(self.paddings[row.index] for row in staying)
        filled = self.length() - 1 + self.target.last.positions.shape[1]
        moved = 0
        for side in self.sides:
            columns = filled + 1 - shift + self.room + SLACK
            if not shift and len(staying) == len(self.rows) and columns <= side.store.columns:
                continue
            source = np.full((len(staying), columns), EMPTY, np.int64)
            first = np.array(places)[:, None] * side.store.columns
            source[:, : filled - shift] = first + np.arange(shift, filled)
            moved += side.store.regrid(source)
        self.rows, self._length = staying, filled + 1 - shift
        self.paddings = {row.index: self.paddings[row.index] - shift for row in staying}
        for row in staying:  # whatever lies there counts as the row's own
            self.target.valid[row.index] = self._length - 1 - self.paddings[row.index]
        return Synchronised({row.index: -shift for row in staying}, moved)


class DraftBonus(Acceptance):
    """bonus-from-draft: the rejected draft token is committed after all."""

    def judge(
        self, logits: Logits, drafted: DraftTokens, rows: list[Sequence], sampler: Sampler
    ) -> list[Verdict]:
        verdicts = super().judge(logits, drafted, rows, sampler)
        return [
            replace(v, bonus=v.draft_token_ids[v.accepted])
            if v.accepted < len(v.draft_token_ids)
            else v
            for v in verdicts
        ]


class LingeringRow(Sequence):
    """finished-rows-kept: an eos is seen, and the row stays."""

    def commit(self, block: Seq[int]) -> list[int]:
        kept = super().commit(block)
        if self.finish_reason == "eos" and self.remaining > 0:
            self.finish_reason = None
        return kept


class LastTokenRow(Sequence):
    """eos-ignored: only the newest token is asked whether it ends the row."""

    def end(self, block: list[int]) -> int | None:
        return len(block) - 1 if block and block[-1] in self.eos_ids else None


SEAMS: dict[str, dict[str, Any]] = {
    "positions-not-rebuilt": {"layout": ColumnPositions},
    "kv-not-realigned": {"layout": UnmovedCache},
    "padding-not-masked": {"layout": CausalMask},
    "rejected-kv-kept": {"layout": UncutCache},
    "bonus-from-draft": {"accept": DraftBonus},
    "pad-by-token-id": {"layout": PadIdMask},
    "finished-rows-kept": {"row": LingeringRow},
    "eos-ignored": {"row": LastTokenRow},
}
"""By fault: the one choice of eqspec that is replaced."""
