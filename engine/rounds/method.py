"""What a method chooses: one part for each step of the round."""

from __future__ import annotations

from dataclasses import dataclass

from engine.rounds.acceptance import Acceptance
from engine.rounds.draft_model import ModelDraft
from engine.rounds.layout import Layout
from engine.rounds.schedule import FixedBatches, Schedule
from engine.rounds.sequence import Sequence


@dataclass(frozen=True)
class Method:
    """A method of batch speculative decoding.

    Attributes:
        layout: where each row's K/V lie, and what is done to keep them right.
        schedule: which rows are in the batch.
        drafter: how a draft model drafts; None: nothing is drafted (K = 0).
        accept: which draft tokens are kept, and what follows them.
        row: what ends a row, and what its output is.
        strict: the method that stands in for it under `--strict`, if not itself.
    """

    layout: type[Layout]
    schedule: type[Schedule] = FixedBatches
    drafter: type[ModelDraft] | None = ModelDraft
    accept: type[Acceptance] = Acceptance
    row: type[Sequence] = Sequence
    strict: Method | None = None
