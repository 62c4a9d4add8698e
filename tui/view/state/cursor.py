"""A place in a run: a round, and a phase within it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Phase(IntEnum):
    """How far a round has come when it is looked at."""

    DRAFT = 0
    """The draft tokens are made and not yet verified."""
    VERIFY = 1
    """They are verified: accepted or struck out."""
    ACCEPT = 2
    """The accepted ones are committed and the bonus is added; nothing has moved yet."""
    REALIGN = 3
    """The rows are synchronised: the round is over."""

    @property
    def word(self) -> str:
        return self.name.lower()


LAST = Phase.REALIGN


class Cursor(NamedTuple):
    """Round 0 is the state before round 1: the prompts."""

    round: int = 0
    phase: Phase = LAST

    def next_phase(self) -> Cursor:
        if self.phase is LAST:
            return Cursor(self.round + 1, Phase.DRAFT)
        return Cursor(self.round, Phase(self.phase + 1))

    def previous_phase(self) -> Cursor:
        if self.round == 0:
            return self
        if self.phase is Phase.DRAFT:
            return Cursor(self.round - 1, LAST)
        return Cursor(self.round, Phase(self.phase - 1))
