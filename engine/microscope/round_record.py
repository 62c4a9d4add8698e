"""From a finished round to its record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.models.windows import mark_hidden
from engine.records.row import RowRound, Span
from engine.rounds.acceptance import Verdict
from engine.rounds.layout import Layout, Synchronised
from engine.rounds.sequence import Sequence
from engine.rounds.side import MaskArray


@dataclass(frozen=True)
class RowAsRead:
    """A row as it stood when the target read it: noted before the commit.

    Attributes:
        place: row of the batch tensor.
        before: committed tokens.
        positions: fed for [last committed, d1 … dK].
        spans: the row in memory.
        waited: rounds since it last took part.
    """

    place: int
    before: int
    positions: tuple[int, ...]
    spans: tuple[Span, ...]
    waited: int


def rows_as_read(layout: Layout, rows: list[Sequence], verdicts: list[Verdict]) -> list[RowAsRead]:
    """What the target read, row by row."""
    fed = layout.target.last
    return [
        RowAsRead(
            place=layout.place(row),
            before=row.length,
            positions=tuple(fed.positions[place, : len(verdict.draft_token_ids) + 1].tolist()),
            spans=_fed_spans(layout, row, verdict, fed.masks[place]),
            waited=row.waited,
        )
        for place, (row, verdict) in enumerate(zip(rows, verdicts, strict=True))
    ]


def _fed_spans(
    layout: Layout, row: Sequence, verdict: Verdict, masks: MaskArray
) -> tuple[Span, ...]:
    """The row as it was read, with what no token of the block sees through a sliding window.

    Args:
        masks: of the row, as they were fed, [kinds, tokens, columns].
    """
    spans = layout.fed_spans(row, verdict.draft_token_ids)
    if len(masks) == 1:
        return spans
    first = layout.padding(row) if layout.aligned else 0  # such a row is shown without it
    hidden: MaskArray = masks[1, : len(verdict.draft_token_ids) + 1, first:].sum(axis=0) == 0
    return mark_hidden(spans, hidden, layout.target.model.windows.everywhere)


def _kept_spans(layout: Layout, row: Sequence) -> tuple[Span, ...]:
    """The row after synchronisation, with what its next token will not see any more."""
    spans = layout.kept_spans(row)
    windows = layout.target.model.windows
    ends = np.cumsum([span.length for span in spans])
    newest = max(
        end for end, span in zip(ends, spans, strict=True) if span.kind in ("content", "ghost")
    )
    if not windows.cuts(newest):
        return spans
    return mark_hidden(spans, np.arange(newest) < newest - windows.size, windows.everywhere)


def row_record(
    layout: Layout,
    row: Sequence,
    verdict: Verdict,
    read: RowAsRead,
    committed: list[int],
    done: Synchronised,
) -> RowRound:
    """One row's part of a round record. Call after synchronisation."""
    stays = row in layout.rows
    kept = (Span(kind="content", length=row.length, position=0, attended=True),)
    draft = layout.draft
    return RowRound(
        row=row.index,
        place=read.place,
        draft_token_ids=verdict.draft_token_ids,
        accepted=verdict.accepted,
        bonus=verdict.bonus if len(committed) > verdict.accepted else None,
        committed=tuple(committed),
        before=read.before,
        content=row.length,
        padding=layout.padding(row) if stays else 0,
        delta=done.deltas.get(row.index, 0),
        kv_length=layout.target.valid[row.index] if stays else row.length - 1,
        draft_kv_length=draft.valid[row.index] if stays and draft else 0,
        positions=read.positions,
        fed=read.spans,
        kept=_kept_spans(layout, row) if stays else kept,
        finish_reason=row.finish_reason,
        error=row.error,
        waited=read.waited,
        tests=verdict.tests,
        choice=verdict.choice,
        forced=verdict.forced,
    )
