"""Whoever looks on: sees each round at three moments, and makes its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.records.schema import Phases, RoundRecord
from engine.rounds.acceptance import Verdict
from engine.rounds.draft_model import DraftTokens
from engine.rounds.draft_policy import Choice
from engine.rounds.layout import Synchronised
from engine.rounds.packed_logits import Logits
from engine.rounds.schedule import Chosen
from engine.rounds.sequence import Sequence


@dataclass(frozen=True)
class AcceptStep:
    """A round between the judgement and the commit.

    Attributes:
        number: of the round, from 1.
        chosen: the rows, as the schedule chose them.
        choice: K.
        rows: that take part, by place.
        length: of the batch when the target read it.
        drafted: the draft tokens.
        logits: the target's.
        verdicts: one a row.
    """

    number: int
    chosen: Chosen
    choice: Choice
    rows: list[Sequence]
    length: int
    drafted: DraftTokens
    logits: Logits
    verdicts: list[Verdict]


@dataclass(frozen=True)
class Costs:
    """What a round cost.

    Attributes:
        seconds: by phase; elapsed: of all rounds so far.
        realign_bytes, staged_bytes: of K/V, read and written.
        queued: rows that wait outside.
    """

    seconds: Phases
    elapsed: float
    realign_bytes: int
    staged_bytes: int
    queued: int


class Observer(Protocol):
    """Looks on, and changes nothing. Its time is charged to no phase."""

    def accepted(self, step: AcceptStep) -> list[Verdict]:
        """Look at the rows as the target read them, before the commit.

        Returns:
            The verdicts, with what is noted of them.
        """

    def synchronised(self, committed: list[list[int]], done: Synchronised) -> None:
        """Look at the rows after synchronisation, the ended ones too.

        Args:
            committed: tokens of each row that were kept.
        """

    def record(self, costs: Costs) -> RoundRecord:
        """Return the record of the round, at its end."""
