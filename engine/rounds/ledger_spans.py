"""Cells to spans: what really lies in a row, read from the ledger."""

from __future__ import annotations

import numpy as np

from engine.models.kv_cache import EMPTY, LedgerArray
from engine.records.row import Span, SpanKind
from engine.rounds.side import MaskArray


def ledger_spans(
    ids: LedgerArray,
    positions: LedgerArray,
    *,
    tokens: LedgerArray,
    columns: LedgerArray,
    padding: MaskArray,
    attended: MaskArray,
    cached: bool = True,
) -> tuple[Span, ...]:
    """Describe one row, cell by cell, and join neighbours of one kind.

    A content cell whose ledger disagrees with the row (another token, another position) is
    a ghost. What is neither content nor padding is stale.

    Args:
        ids, positions: the ledger of the row's cells, [width].
        tokens: the row's committed tokens.
        columns: the cell of each committed token, [committed].
        padding: which cells are padding, [width].
        attended: which cells the row's queries may attend to, [width].
        cached: whether the last committed token has its K/V yet.
    """
    width = len(ids)
    index = np.full(width, -1, np.int64)
    index[columns] = np.arange(len(columns))
    spans: list[Span] = []
    begin = 0
    kinds = [_kind(at, index, ids, positions, tokens, padding, cached) for at in range(width)]
    for at in range(1, width + 1):
        if at < width and _joins(at, kinds, index, positions, attended):
            continue
        spans.append(_span(begin, at, kinds[begin], index, ids, positions, attended))
        begin = at
    return tuple(spans)


def _kind(
    at: int,
    index: LedgerArray,
    ids: LedgerArray,
    positions: LedgerArray,
    tokens: LedgerArray,
    padding: MaskArray,
    cached: bool,
) -> SpanKind:
    place = int(index[at])
    if place < 0:
        return "pad" if padding[at] else "stale"
    if place == len(tokens) - 1 and not cached:
        return "content"
    right = ids[at] == tokens[place] and positions[at] == place
    return "content" if right else "ghost"


def _joins(
    at: int,
    kinds: list[SpanKind],
    index: LedgerArray,
    positions: LedgerArray,
    attended: MaskArray,
) -> bool:
    if kinds[at] != kinds[at - 1] or attended[at] != attended[at - 1]:
        return False
    if kinds[at] == "pad":
        return True
    if index[at] >= 0 and index[at] != index[at - 1] + 1:
        return False
    if kinds[at] == "content":
        return True
    here, before = positions[at], positions[at - 1]
    if EMPTY in (here, before):  # nothing was fed there: position 0 does not follow on that
        return bool(here == before)
    return bool(here == before + 1)


def _span(
    begin: int,
    end: int,
    kind: SpanKind,
    index: LedgerArray,
    ids: LedgerArray,
    positions: LedgerArray,
    attended: MaskArray,
) -> Span:
    place = int(index[begin])
    position: int | None = int(positions[begin])
    if kind == "content":
        position = place
    elif position == EMPTY:
        position = None
    return Span(
        kind=kind,
        length=end - begin,
        first=max(place, 0),
        tokens=tuple(int(token) for token in ids[begin:end]) if kind == "stale" else (),
        position=position,
        attended=bool(attended[begin]),
    )
