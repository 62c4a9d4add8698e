"""How many draft tokens each row may have in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.records.schema import DraftChoice, RoundRecord


@dataclass(frozen=True)
class Choice:
    """K of a round, and why."""

    draft_tokens: int
    why: DraftChoice | None = None


class DraftPolicy(Protocol):
    """Chooses K before any draft token of the round is drawn (else sampling were not lossless).

    Attributes:
        largest: the largest K that it ever chooses.
    """

    largest: int

    def choose(self, rows: int) -> Choice:
        """Return K of the next round, in which so many rows take part."""

    def observe(self, record: RoundRecord) -> None:
        """Learn from a finished round."""


class Fixed:
    """Always the same K. It may be set between rounds, up to `largest`."""

    def __init__(self, draft_tokens: int) -> None:
        self.draft_tokens = self.largest = draft_tokens

    def choose(self, rows: int) -> Choice:
        return Choice(min(self.draft_tokens, self.largest))

    def observe(self, record: RoundRecord) -> None:
        pass
