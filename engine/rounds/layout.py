"""The interface of a layout, and one model's side of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.models.causal_lm import LanguageModel
from engine.models.cuda_graphs import FixedShapes
from engine.models.forward_input import Feed
from engine.models.host_transfer import Crossing, to_device
from engine.models.kv_cache import EMPTY, KVStore, LedgerArray
from engine.records.schema import Span
from engine.rounds.sequence import Sequence

MaskArray = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

LastFed = tuple[LedgerArray, MaskArray, LedgerArray]


@dataclass
class Side:
    """One model with its cache, as a layout keeps it.

    Attributes:
        valid: by request index, how many of the row's committed tokens have right K/V.
        last: positions [rows, tokens], masks [rows, kinds, tokens, columns read]
            (`Feed.masks`) and columns [rows, tokens] of the latest forward, for the
            invariants.
        fixed: runs blocks of every slot in fixed shapes, where the layout can.
    """

    model: LanguageModel
    store: KVStore = field(default_factory=KVStore)
    valid: dict[int, int] = field(default_factory=dict)
    unstamped: list[tuple[KVStore, LedgerArray, Tensor, MaskArray, LedgerArray]] = field(
        default_factory=list
    )
    _last: LastFed | None = None
    _unread: tuple[Feed, LedgerArray] | None = None
    fixed: FixedShapes | None = None

    def run(
        self,
        feed: Feed,
        *,
        cells: LedgerArray,
        keep: int,
        store: KVStore | None = None,
        fixed: bool = False,
    ) -> Tensor:
        """One forward. The ledger is written later, when the ids are on the host anyway.

        Args:
            fixed: whether the block has one of the shapes of `self.fixed`, if there are any.
        """
        store = store or self.store
        positions = feed.positions.numpy()
        self._unread = feed, cells % store.columns
        model = self.fixed if fixed and self.fixed is not None else self.model
        logits = model.forward(feed, store, keep=keep)
        real = feed.real
        self.unstamped.append((store, cells[real], feed.ids, real, positions[real]))
        return logits

    @property
    def last(self) -> LastFed | None:
        if self._unread is not None:  # masks are worked out for those who ask
            feed, columns = self._unread
            masks = feed.masks(self.model.windows).numpy()
            self._last, self._unread = (feed.positions.numpy(), masks, columns), None
        return self._last

    @last.setter
    def last(self, value: LastFed) -> None:
        self._last = value

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


@dataclass(frozen=True)
class Settled:
    """What synchronisation did: δ by request index, and bytes moved."""

    deltas: dict[int, int]
    moved_bytes: int = 0


class Layout(ABC):
    """The state of the rows that are in the batch.

    Content index j of a row is its j-th token (prompt included); a row with n committed
    tokens has content 0 … n − 1. A *block* of T tokens at offset o holds content indices
    n + o … n + o + T − 1 of every row: the target's verification has o = −1, the draft's
    catch-up o = −2 or less, its further steps o = 0, 1, …

    Attributes:
        rows: the rows that take part in the round, by place.
        room: columns that a round may need beyond the committed ones (K + 1).
        strict: whether every forward of the target has one fixed shape.
        rectangular: whether I1 applies: rows padded to one length.
        aligned: whether I1 applies to the rows as they are read, though not as they are kept.
        keeps_cache: whether K/V live on between rounds; else there is nothing to keep in
            step (I3).
    """

    rectangular = True
    aligned = False
    keeps_cache = True

    def __init__(
        self,
        target: LanguageModel,
        draft: LanguageModel | None,
        *,
        room: int,
        strict: bool = False,
    ) -> None:
        self.target = Side(target)
        self.draft = Side(draft) if draft is not None else None
        self.room = room
        self.strict = strict
        self.rows: list[Sequence] = []
        if self.draft is not None and self.keeps_cache:
            beside(self.draft, self.target.store, self.draft.store)

    @property
    def sides(self) -> list[Side]:
        return [self.target] if self.draft is None else [self.target, self.draft]

    @property
    def stores(self) -> list[KVStore]:
        """Every cache that it keeps."""
        return [side.store for side in self.sides]

    @abstractmethod
    def admit(self, rows: list[Sequence]) -> None:
        """Take rows into the batch and prefill `prompt[:-1]` on both sides."""

    @abstractmethod
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
        """Run one side over a block.

        Args:
            ids: [rows, tokens]. Cells before a row's beginning, and tokens beyond a row's
                own K_i, hold any id: they are never attended to by what counts.
            offset: see the class.
            keep: last tokens that need logits; 0 = all.
            counts: how many tokens of each row are real, where that is known: the model
                then computes only those (`Feed.counts`).
            latest: whether these are the last ones of each row, and not the first.

        Returns:
            Logits [rows, tokens kept, head columns], or [real tokens, head columns], row
            after row, where counts are given and the block was packed.
        """

    def verify(self, block: Tensor, counts: list[int]) -> Tensor:
        """Run the target over [last committed, d1 … dK].

        Args:
            block: [rows, K + 1].
            counts: K_i + 1 of each row.

        Returns:
            Logits [rows, K + 1, vocabulary], where beyond a row's count they mean nothing,
            or [real tokens, vocabulary] (`engine.rounds.packed_logits`).
        """
        if not self.strict and self.target.fixed is None:
            return self.feed(self.target, block, -1, counts=counts)
        tokens = block.shape[1]
        block = pad(block, (0, self.room - tokens))
        return self.feed(self.target, block, -1, counts=counts)[:, :tokens]

    @abstractmethod
    def settle(self) -> Settled:
        """Synchronise after the commit: drop rows that ended, make room, realign."""

    def choose(self, rows: list[Sequence]) -> int:
        """Make these rows the batch of the round, and return the bytes of K/V moved for it.

        Most layouts always run all they hold, and move nothing.
        """
        assert rows == self.rows
        return 0

    def compact(self) -> int:
        """Give back what rows that ended still hold, and return the bytes moved for it.

        Most layouts have done so by then.
        """
        return 0

    @abstractmethod
    def padding(self, row: Sequence) -> int:
        """Padding p of a row."""

    def stale(self, row: Sequence) -> int:
        """Slots between a row's content that hold none of it, where a method leaves some."""
        return 0

    @abstractmethod
    def length(self) -> int:
        """Rectangle length L, or the longest live row."""

    @abstractmethod
    def content_cells(self, side: Side, row: Sequence, count: int) -> LedgerArray:
        """Flat cells of the row's first `count` content tokens, in order."""

    def read_columns(self, row: Sequence, count: int) -> LedgerArray:
        """Columns in which the row's first `count` content tokens lay when the target read
        them in this round."""
        cells = self.content_cells(self.target, row, count)
        return cells - self.place(row) * self.target.store.columns

    @abstractmethod
    def fed_spans(self, row: Sequence, draft_token_ids: tuple[int, ...]) -> tuple[Span, ...]:
        """The row as the target reads it in this round (call before `settle`)."""

    @abstractmethod
    def kept_spans(self, row: Sequence) -> tuple[Span, ...]:
        """The row after synchronisation."""

    def place(self, row: Sequence) -> int:
        return self.rows.index(row)

    def block_positions(self, tokens: int, offset: int, side: Side) -> LedgerArray:
        """Positions of a block, [rows, tokens]: the content index (design.md, I2).

        Cells that hold no content (before a row's beginning, or past the model's
        context) are given a position that the model has.
        """
        lengths = np.array([row.length for row in self.rows], np.int64)
        index = lengths[:, None] + offset + np.arange(tokens)[None]
        clipped: LedgerArray = np.clip(index, 0, side.model.context - 1)
        return clipped

    def committed(self, count: int, device: torch.device) -> Tensor:
        """The last `count` committed tokens of every row, [rows, count]; 0 before a row's
        beginning."""
        block = np.zeros((len(self.rows), count), np.int64)
        for place, row in enumerate(self.rows):
            have = min(count, row.length)
            block[place, count - have :] = row.tokens[row.length - have :]
        return to_device(torch.from_numpy(block), device)


def beside(draft: Side, targets: KVStore, drafts: KVStore) -> None:
    """Let an EAGLE-style draft find the target's vectors. A layout lays both stores out alike."""
    if draft.model.reads_features:
        targets.keeps_features, drafts.beside = True, targets


def trailing_spans(ids: LedgerArray, start: int) -> tuple[Span, ...]:
    """What is left in a row's cells from column `start` on: slots that were written once
    and hold no committed token."""
    written = np.flatnonzero(ids[start:] != EMPTY)
    if not len(written):
        return ()
    stop = start + int(written[-1]) + 1
    tokens = tuple(int(token) for token in ids[start:stop])
    return (Span(kind="stale", length=stop - start, tokens=tokens),)
