"""One model with its cache, as a layout keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from torch import Tensor

from engine.models.causal_lm import LanguageModel
from engine.models.cuda_graphs import FixedShapes
from engine.models.forward_input import Feed
from engine.models.host_transfer import Crossing
from engine.models.kv_cache import KVStore, LedgerArray
from engine.models.windows import Windows
from engine.rounds.sequence import Sequence

MaskArray = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class Fed:
    """What a forward was fed, for the invariants and the record.

    Attributes:
        positions: position IDs, [rows, tokens].
        columns: where each token's K/V were written, [rows, tokens].
    """

    def __init__(self, feed: Feed, columns: LedgerArray, windows: Windows) -> None:
        self._feed = feed
        self._windows = windows
        self._rows: slice | list[int] = slice(None)
        self._tokens = slice(None)
        self.positions: LedgerArray = feed.positions.numpy()
        self.columns = columns

    @cached_property
    def masks(self) -> MaskArray:
        """What each query could attend to, [rows, kinds, tokens, columns read] (`Feed.masks`).

        Worked out for those who ask.
        """
        masks: MaskArray = self._feed.masks(self._windows).numpy()
        return masks[self._rows][:, :, self._tokens]

    def part(self, rows: slice | list[int], tokens: slice = slice(None)) -> Fed:
        """The same of some rows, and of some tokens of each."""
        part = Fed(self._feed, self.columns[rows][:, tokens], self._windows)
        part.positions = self.positions[rows][:, tokens]
        part._rows, part._tokens = rows, tokens
        return part


@dataclass
class Side:
    """One model with its cache.

    Attributes:
        valid: by request index, how many of the row's committed tokens have right K/V.
        fixed: runs blocks of every slot in fixed shapes, where the layout can.
    """

    model: LanguageModel
    store: KVStore = field(default_factory=KVStore)
    valid: dict[int, int] = field(default_factory=dict)
    fixed: FixedShapes | None = None
    unstamped: list[tuple[KVStore, LedgerArray, Tensor, MaskArray, LedgerArray]] = field(
        default_factory=list
    )
    _last: Fed | None = None

    def run(
        self,
        feed: Feed,
        *,
        cells: LedgerArray,
        keep: int,
        store: KVStore | None = None,
        fixed: bool = False,
    ) -> Tensor:
        """Run one forward. The ledger is written later, when the ids are on the host anyway.

        Args:
            cells: flat cell of each token, [rows, tokens].
            keep: last tokens that need logits; 0 = all.
            store: the cache, if not the side's own.
            fixed: whether the block has one of the shapes of `self.fixed`, if there are any.
        """
        store = store or self.store
        self._last = Fed(feed, cells % store.columns, self.model.windows)
        model = self.fixed if fixed and self.fixed is not None else self.model
        logits = model.forward(feed, store, keep=keep)
        real = feed.real
        positions = self._last.positions[real]
        self.unstamped.append((store, cells[real], feed.ids, real, positions))
        return logits

    @property
    def last(self) -> Fed:
        """What the latest forward was fed."""
        assert self._last is not None, "nothing was fed yet"
        return self._last

    def narrow(self, rows: slice | list[int], tokens: slice = slice(None)) -> None:
        """Of what was fed last, only these rows and tokens count."""
        self._last = self.last.part(rows, tokens)

    def prefilled(self, row: Sequence) -> int:
        """Valid K/V of a row after its prefill: none where it is longer than this model's
        context (a draft's may be the shorter one; such a row is not drafted for)."""
        return row.length - 1 if row.length - 1 <= self.model.context else 0

    def stamp(self) -> None:
        """Enter what was fed since the last call in the ledger."""
        Stamps([self]).enter()


class Stamps:
    """What some sides were fed since the last stamp: the ids begin to cross to the host
    now, all in one copy, and are entered in the ledgers later."""

    def __init__(self, sides: list[Side]) -> None:
        self._sides = sides
        self._ids = Crossing([fed[2] for side in sides for fed in side.unstamped])

    def enter(self) -> None:
        """Enter them in the ledgers."""
        arrived = iter(self._ids.arrived())
        for side in self._sides:
            for store, cells, _, real, positions in side.unstamped:
                store.stamp(cells, next(arrived)[real], positions)
            side.unstamped.clear()
