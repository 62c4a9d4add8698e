"""How many draft tokens each row may have in a round."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

from engine.records.schema import RoundRecord
from engine.rounds.sequence import Sequence


@dataclass(frozen=True)
class Choice:
    """K of a round, and why.

    Attributes:
        rows: request indices of those that draft; None: all.
    """

    draft_tokens: int
    reason: str = ""
    rows: frozenset[int] | None = None


class DraftPolicy(Protocol):
    """Chooses K before any draft token of the round is drawn (else sampling were not lossless).

    Attributes:
        largest: the largest K that it ever chooses.
    """

    largest: int

    def choose(self, rows: Seq[Sequence], *, refilled: bool) -> Choice:
        """Return K for a round.

        Args:
            rows: that take part.
            refilled: whether others take the place of a row that ends.
        """

    def observe(self, record: RoundRecord) -> None:
        """Learn from a finished round."""


class Fixed:
    """Always the same K, for all rows. It may be set between rounds, up to `largest`."""

    def __init__(self, draft_tokens: int) -> None:
        self.draft_tokens = self.largest = draft_tokens

    def choose(self, rows: Seq[Sequence], *, refilled: bool) -> Choice:
        return Choice(min(self.draft_tokens, self.largest))

    def observe(self, record: RoundRecord) -> None:
        pass
