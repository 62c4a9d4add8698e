"""Why a row differs from the oracle: one label for each first difference.

- *numeric*: no invariant of the row broke up to that round, and the oracle's two best
  tokens lie within the tolerance at that place, so that rounding decided.
- *desync*: an invariant broke: which, and in which round. A difference that nothing
  explains (no invariant broke, and the gap is above the tolerance) is a desync as well,
  with no invariant: it must never pass for rounding.
- *stopped*: the method ended the row before the oracle did.

Pure functions over records, answers and a tolerance: a screen, a check of another
engine's tokens and `verify` share them, and none of them needs a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from engine.records.fold import RowFold
from engine.records.violation import InvariantName, Violation

Cause = Literal["numeric", "desync", "stopped"]


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The oracle's answer to one prompt."""

    index: int
    """Request index, in the order of the prompts."""
    output_ids: tuple[int, ...]
    finish_reason: str
    error: str | None = None
    gaps: tuple[float, ...] = ()
    """For each output token, the distance between the two best logits."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first place at which a row differs from the oracle: an entry of `divergences`."""

    index: int
    """Request index."""
    position: int
    """Place among the row's new tokens, from 0."""
    expected: int | None
    """The oracle's token; null where the oracle had ended."""
    got: int | None
    """The method's token; null where the method stopped."""
    oracle_gap: float | None
    cause: Cause
    invariant: InvariantName | None
    round: int | None
    """The round in which the invariant broke (desync), else the one of the difference.
    Null where no rounds are known."""
    violation: Violation | None = None
    """What broke (desync), where a record says it."""
    tolerance: float = 0.0
    """Distance of two logits that rounding explains."""
    finish_reason: str = ""
    """How the row ended (stopped), or the oracle did (the row went on after it)."""
    error: str = ""
    """Why the row could not go on (stopped)."""


def attribute(
    rows: Mapping[int, RowFold],
    answers: Iterable[Answer],
    tolerance: float,
    *,
    complete: bool = True,
    eos_ids: Sequence[int] | None = None,
) -> list[Divergence]:
    """The first difference of each row, labelled; rows that agree are left out.

    Args:
        rows: of `fold_rows`; other engines' tokens are rows without rounds.
        answers: the oracle's; rows without one are left out.
        tolerance: of `engine.evaluation.oracle.Oracle.tolerance`.
        complete: the run is over: a row that has fewer tokens than the oracle stopped.
            Otherwise such a row has just not come so far.
        eos_ids: compare outputs cut after their first eos (for methods that run past it).
    """
    found = []
    for answer in answers:
        trail = rows.get(answer.index, RowFold())
        divergence = first_divergence(trail, answer, tolerance, complete=complete, eos_ids=eos_ids)
        if divergence is not None:
            found.append(divergence)
    return found


def first_divergence(
    trail: RowFold,
    answer: Answer,
    tolerance: float,
    *,
    complete: bool = True,
    eos_ids: Sequence[int] | None = None,
) -> Divergence | None:
    """The first difference of one row; None where there is none (see `attribute`)."""
    output: Sequence[int] = trail.output if eos_ids is None else cut_at_eos(trail.output, eos_ids)
    place = agreement(output, answer.output_ids)
    if place == len(answer.output_ids) == len(output):
        return None
    if place == len(output) < len(answer.output_ids):
        if not complete and trail.finish_reason is None:
            return None
        return _stopped(trail, answer, place)
    if place == len(answer.output_ids):
        return _past_the_end(trail, answer, place)
    return _different(trail, answer, place, tolerance)


def agreement(output: Sequence[int], expected: Sequence[int]) -> int:
    """Length of the common prefix."""
    for place, (mine, theirs) in enumerate(zip(output, expected, strict=False)):
        if mine != theirs:
            return place
    return min(len(output), len(expected))


def cut_at_eos(output: Sequence[int], eos_ids: Sequence[int]) -> Sequence[int]:
    """Up to the first eos, which is kept."""
    for place, token in enumerate(output):
        if token in eos_ids:
            return output[: place + 1]
    return output


def _different(trail: RowFold, answer: Answer, place: int, tolerance: float) -> Divergence:
    round = trail.rounds[place] if trail.rounds else None
    gap = answer.gaps[place] if place < len(answer.gaps) else None
    cause: Cause = "desync"
    violation: Violation | None = None
    broken = _culprit(trail, place, round)
    if broken is not None:
        round, violation = broken
    elif gap is not None and gap <= tolerance:
        cause = "numeric"
    return Divergence(
        index=answer.index,
        position=place,
        expected=answer.output_ids[place],
        got=trail.output[place],
        oracle_gap=gap,
        cause=cause,
        invariant=None if violation is None else violation.invariant,
        round=round,
        violation=violation,
        tolerance=tolerance if violation is None else 0.0,
    )


def _stopped(trail: RowFold, answer: Answer, place: int) -> Divergence:
    return Divergence(
        index=answer.index,
        position=place,
        expected=answer.output_ids[place],
        got=None,
        oracle_gap=answer.gaps[place] if place < len(answer.gaps) else None,
        cause="stopped",
        invariant=None,
        round=trail.last_round,
        finish_reason=trail.finish_reason or "",
        error=trail.error or "",
    )


def _past_the_end(trail: RowFold, answer: Answer, place: int) -> Divergence:
    """The oracle had ended: whatever follows breaks I5, whether or not a record says so."""
    return Divergence(
        index=answer.index,
        position=place,
        expected=None,
        got=trail.output[place],
        oracle_gap=None,
        cause="desync",
        invariant="I5",
        round=trail.rounds[place] if trail.rounds else None,
        finish_reason=answer.finish_reason,
    )


def _culprit(trail: RowFold, place: int, round: int | None) -> tuple[int, Violation] | None:
    """The broken invariant that is to blame for a difference in `round`.

    A token that was not the target's own choice (I5 in this very round, and no accepted
    draft token) explains itself. Otherwise it is what broke first: what came after may only
    be its consequence. Within a round: what the target read wrongly before what was left
    behind wrongly.
    """
    if round is None:
        return None
    before = [(when, violation) for when, violation in trail.broken if when <= round]
    if not trail.accepted[place]:
        for when, violation in before:
            if when == round and violation.invariant == "I5":
                return when, violation
    order = ("I4", "I2", "I3", "I1", "I5")
    return min(before, key=lambda entry: (entry[0], order.index(entry[1].invariant)), default=None)
