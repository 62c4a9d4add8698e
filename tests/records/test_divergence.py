"""The cause of a divergence: numeric, desync or stopped, by records and answers alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.records.divergence import Answer, agreement, attribute, cut_at_eos, first_divergence
from engine.records.fold import RowFold, fold_rows
from engine.records.row import RowRound
from engine.records.schema import RoundRecord
from engine.records.violation import Violation
from tui.view.sentences import divergence_words

ANSWER = Answer(
    index=0, output_ids=(5, 6, 7, 8, 9), finish_reason="length", gaps=(1.0, 0.01, 0.5, 0.02, 3.0)
)


def rounds(*blocks: tuple[int, ...], broken: Any = (), ended: str | None = "length") -> Any:
    """A run of row 0 that commits one block a round; `broken`: (round, invariant, row)."""
    return [
        RoundRecord(
            round=number,
            rows=(
                RowRound(
                    row=0,
                    committed=block,
                    finish_reason=ended if number == len(blocks) else None,
                ),
            ),
            violations=tuple(
                Violation(invariant=name, row=row, note=f"{name} in round {when}")
                for when, name, row in broken
                if when == number
            ),
        )
        for number, block in enumerate(blocks, start=1)
    ]


def divergence(*blocks: tuple[int, ...], answer: Answer = ANSWER, **other: Any) -> Any:
    shaped = {name: other.pop(name) for name in ("broken", "ended") if name in other}
    tolerance = other.pop("tolerance", 0.1)
    return first_divergence(fold_rows(rounds(*blocks, **shaped))[0], answer, tolerance, **other)


def test_equal_outputs_do_not_diverge() -> None:
    assert divergence((5, 6), (7, 8, 9)) is None
    assert divergence((5, 6), (7, 8, 9), broken=[(1, "I2", 0)]) is None


def test_numeric_needs_a_small_gap_and_no_broken_invariant() -> None:
    found = divergence((5, 0), (7, 8, 9))
    assert (found.cause, found.invariant, found.round) == ("numeric", None, 1)
    assert (found.position, found.expected, found.got, found.oracle_gap) == (1, 6, 0, 0.01)


def test_a_broken_invariant_outweighs_a_small_gap() -> None:
    found = divergence((5,), (0, 7), (8, 9), broken=[(1, "I3", 0)])
    assert (found.cause, found.invariant, found.round) == ("desync", "I3", 1)
    assert divergence_words(found) == "I3 in round 1"


def test_what_broke_afterwards_or_in_another_row_is_no_cause() -> None:
    found = divergence((5, 0), (7,), (8, 9), broken=[(2, "I3", 0), (1, "I2", 4)])
    assert found.cause == "numeric"


def test_what_the_whole_batch_broke_counts_for_each_row() -> None:
    found = divergence((5, 6), (0,), (8, 9), broken=[(1, "I1", None)])
    assert (found.cause, found.invariant) == ("desync", "I1")


@pytest.mark.parametrize(
    ("broken", "blamed"),
    [
        ([(1, "I1", 0), (2, "I2", 0)], ("I1", 1)),  # what broke first
        ([(2, "I3", 0), (2, "I2", 0), (2, "I1", 0)], ("I2", 2)),  # what was read comes first
        ([(1, "I2", 0), (2, "I5", 0)], ("I5", 2)),  # the token itself was not the target's
        ([(1, "I5", 0), (1, "I4", 0)], ("I4", 1)),  # that of another token was not
    ],
)
def test_which_invariant_is_blamed(broken: Any, blamed: tuple[str, int]) -> None:
    found = divergence((5, 6), (0, 8, 9), broken=broken)
    assert (found.invariant, found.round) == blamed


def test_an_accepted_draft_token_was_the_targets_choice() -> None:
    """The bonus broke I5; the token that differs was accepted, so what was read is to blame."""
    broken = [(1, "I2", 0), (2, "I5", 0)]
    records = rounds((5, 6), (0, 8, 9), broken=broken)
    row = msgspec.structs.replace(records[1].rows[0], accepted=2)
    records[1] = msgspec.structs.replace(records[1], rows=(row,))
    found = first_divergence(fold_rows(records)[0], ANSWER, 0.1)
    assert found is not None
    assert (found.invariant, found.round) == ("I2", 1)


def test_a_difference_that_nothing_explains_never_passes_for_rounding() -> None:
    found = divergence((5, 6), (0, 8, 9))
    assert (found.cause, found.invariant, found.round) == ("desync", None, 2)
    assert "unexplained" in divergence_words(found)


def test_stopped_is_a_row_that_ended_early() -> None:
    found = divergence((5, 6), (7,), ended="batch")
    assert (found.cause, found.position, found.expected, found.got) == ("stopped", 3, 8, None)
    assert (found.round, found.invariant) == (2, None)


def test_a_row_that_still_runs_has_not_stopped() -> None:
    assert divergence((5, 6), (7,), ended=None, complete=False) is None
    assert divergence((5, 6), (7,), ended="batch", complete=False).cause == "stopped"
    assert divergence((5, 0), ended=None, complete=False).cause == "numeric"


def test_going_on_after_the_end_breaks_i5() -> None:
    answer = Answer(index=0, output_ids=(5, 6), finish_reason="eos", gaps=(1.0, 1.0))
    found = divergence((5, 6), (7,), answer=answer)
    assert (found.cause, found.invariant, found.round) == ("desync", "I5", 2)
    assert (found.position, found.expected, found.got) == (2, None, 7)
    assert divergence((5, 6), (7,), answer=answer, eos_ids=(6,)) is None


def test_tokens_of_another_engine_have_no_rounds() -> None:
    found = first_divergence(RowFold(output=[5, 0]), ANSWER, 0.1)
    assert found is not None
    assert (found.cause, found.round) == ("numeric", None)
    found = first_divergence(RowFold(output=[0]), ANSWER, 0.1)
    assert found is not None
    assert (found.cause, found.invariant) == ("desync", None)


def test_rows_without_a_round_and_rows_without_an_answer() -> None:
    silent = Answer(index=3, output_ids=(), finish_reason="error", error="too long")
    spoken = Answer(index=4, output_ids=(1,), finish_reason="length", gaps=(1.0,))
    trails = fold_rows(rounds((5, 6, 7, 8, 9)))
    assert attribute(trails, [ANSWER, silent], 0.1) == []
    [found] = attribute(trails, [spoken], 0.1)
    assert (found.index, found.cause, found.position) == (4, "stopped", 0)
    assert attribute(trails, [spoken], 0.1, complete=False) == []


def test_the_parts() -> None:
    assert agreement((1, 2, 3), (1, 2, 4)) == 2
    assert agreement((), (1,)) == 0
    assert cut_at_eos((1, 2, 3, 2), (2,)) == (1, 2)
    assert cut_at_eos((1, 3), (2,)) == (1, 3)
