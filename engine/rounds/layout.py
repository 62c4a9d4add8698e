"""The interface of a layout: where the rows' K/V lie, and what keeps them in step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.models.causal_lm import LanguageModel
from engine.models.host_transfer import to_device
from engine.models.kv_cache import EMPTY, KVStore, LedgerArray
from engine.records.row import Span
from engine.rounds.sequence import Sequence
from engine.rounds.side import Side


@dataclass(frozen=True)
class Plan:
    """The sizes that a layout is made for.

    Attributes:
        batch_size: B.
        window: W.
        draft_tokens: the largest K of the run.
        columns: the longest that any row of the run may become.
        strict: whether every forward of the target has one fixed shape.
        graphs: whether forwards are recorded and replayed, where the layout can.
    """

    batch_size: int
    window: int
    draft_tokens: int
    columns: int
    strict: bool = False
    graphs: bool = False

    @property
    def block(self) -> int:
        """Columns that a round may need beyond the committed ones: K + 1."""
        return self.draft_tokens + 1


@dataclass(frozen=True)
class Synchronised:
    """What synchronisation did.

    Attributes:
        deltas: δ by request index, columns by which the row's K/V moved.
        moved_bytes: read and written.
    """

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

    def __init__(self, target: LanguageModel, draft: LanguageModel | None, plan: Plan) -> None:
        self.target = Side(target)
        self.draft = Side(draft) if draft is not None else None
        self.room = plan.block
        self.strict = plan.strict
        self.rows: list[Sequence] = []
        if self.draft is not None and self.keeps_cache:
            self.draft.model.connect(target, self.target.store, self.draft.store)

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

    def realigns(self, rows: list[Sequence]) -> bool:
        """Whether moving K/V in a round of these rows is realignment, the cost of raggedness.

        Else it is charged to scheduling: rows that are stacked as they are, or own their slots.
        """
        return True

    def gather(self, rows: list[Sequence]) -> int:
        """Make these rows the batch of the round; return the bytes of K/V moved for it.

        Most layouts always run all they hold, and move nothing.
        """
        assert rows == self.rows
        return 0

    @abstractmethod
    def synchronise(self) -> Synchronised:
        """Bring the state in step after the commit: drop rows that ended, make room, realign."""

    def compact(self) -> int:
        """Give back what rows that ended still hold; return the bytes moved for it.

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
        """The row as the target reads it in this round (call before `synchronise`)."""

    @abstractmethod
    def kept_spans(self, row: Sequence) -> tuple[Span, ...]:
        """The row after synchronisation."""

    def place(self, row: Sequence) -> int:
        return self.rows.index(row)

    def block_positions(self, tokens: int, offset: int, side: Side) -> LedgerArray:
        """Positions of a block, [rows, tokens]: the content index (I2).

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


def trailing_spans(ids: LedgerArray, start: int) -> tuple[Span, ...]:
    """What is left in a row's cells from column `start` on: slots that were written once
    and hold no committed token."""
    written = np.flatnonzero(ids[start:] != EMPTY)
    if not len(written):
        return ()
    stop = start + int(written[-1]) + 1
    tokens = tuple(int(token) for token in ids[start:stop])
    return (Span(kind="stale", length=stop - start, tokens=tokens),)
