"""The deep form of I3: each row's K/V against those of the row decoded alone.

The ledger says which token was written where; it cannot see wrong numbers (attention to
a foreign cell, a shifted position inside the model). The audit recomputes the K/V of
each row alone and compares. A slot that differs by more than rounding is a *ghost*.
"""

from __future__ import annotations

import numpy as np
import torch
from msgspec.structs import replace

from engine.microscope.invariants import Found
from engine.models.causal_lm import LanguageModel
from engine.models.forward_input import Feed
from engine.models.kv_cache import KVStore, Write
from engine.records.row import Span
from engine.records.violation import Violation
from engine.rounds.layout import Layout
from engine.rounds.sequence import Sequence

TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-3,
    torch.bfloat16: 0.2,
    torch.float16: 0.05,
}
"""Largest relative difference of one slot's K or V in one layer that counts as rounding.

Other shapes round differently, and each layer adds to it: on a 30-layer model in bf16 up
to some per cent. A token at a wrong position or with a wrong context differs by its own
size.
"""


class Audit:
    """Keeps each row's own K/V and compares the cache with them."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._alone: dict[int, KVStore] = {}
        self._done: dict[int, int] = {}

    def ghosts(self, layout: Layout, row: Sequence) -> list[int]:
        """Content indices of the row's slots whose K/V are not the row's own."""
        count = min(layout.target.valid[row.index], row.length - 1)
        if count <= 0:
            return []
        own = self._extend(row, count)
        cells = torch.from_numpy(layout.content_cells(layout.target, row, count))
        worst = torch.zeros(count, dtype=torch.float64)
        held_in = layout.target.store.buffers[: len(own.buffers)]  # K and V; others may follow
        for mine, theirs in zip(own.buffers, held_in, strict=True):
            expected = mine[:count].flatten(1).double().cpu()
            held = theirs[cells.to(theirs.device)].flatten(1).double().cpu()
            size = expected.norm(dim=1).clamp_min(1e-12)
            worst = torch.maximum(worst, (held - expected).norm(dim=1) / size)
        bad = ~(worst <= TOLERANCE.get(self._model.dtype, 0.0))  # NaN is bad as well
        return [int(at) for at in bad.nonzero().flatten()]

    def forget(self, row: Sequence) -> None:
        """Give back what is kept for a row that ended."""
        self._alone.pop(row.index, None)
        self._done.pop(row.index, None)

    def _extend(self, row: Sequence, count: int) -> KVStore:
        """The row's own K/V of its first `count` tokens; only new ones are computed."""
        done = self._done.get(row.index, 0)
        store = self._alone.get(row.index)
        if store is None or store.columns < count:
            store, done = KVStore(), 0
            store.clear(1, max(count, row.limit))
            self._alone[row.index] = store
        if count > done:
            tokens = count - done
            mask = np.arange(count) <= (done + np.arange(tokens))[:, None]
            feed = Feed(
                ids=torch.from_numpy(row.tokens[done:count].copy())[None],
                positions=torch.from_numpy(np.arange(done, count))[None],
                mask=torch.from_numpy(mask)[None, None],
                write=Write(rows=1, read=count, start=done),
            )
            self._model.forward(feed, store, keep=1)
        self._done[row.index] = count
        return store


def audit(
    auditor: Audit, layout: Layout, rows: list[Sequence]
) -> tuple[Found, dict[int, list[int]]]:
    """Compare all rows after a round.

    Returns:
        The I3 faults, and the ghosts by request index.
    """
    found: Found = []
    ghosts: dict[int, list[int]] = {}
    for row in rows:
        if not row.running:
            auditor.forget(row)
        elif layout.keeps_cache and row in layout.rows:
            bad = auditor.ghosts(layout, row)
            if bad:
                ghosts[row.index] = bad
                found.append(
                    Violation(
                        invariant="I3",
                        row=row.index,
                        kind="ghosts",
                        model="target",
                        slots=tuple(bad),
                    )
                )
    return found, ghosts


def mark_ghosts(spans: tuple[Span, ...], ghosts: list[int]) -> tuple[Span, ...]:
    """Cut the ghosts out of a row's content spans."""
    bad = frozenset(ghosts)
    marked: list[Span] = []
    for span in spans:
        if span.kind != "content":
            marked.append(span)
            continue
        start = 0
        flags = [span.first + at in bad for at in range(span.length)]
        for at in range(1, span.length + 1):
            if at < span.length and flags[at] == flags[start]:
                continue
            marked.append(
                replace(
                    span,
                    kind="ghost" if flags[start] else "content",
                    length=at - start,
                    first=span.first + start,
                    position=None if span.position is None else span.position + start,
                )
            )
            start = at
    return tuple(marked)
