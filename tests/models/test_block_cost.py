"""Which rows of a ragged block are computed apart from the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.models.block_cost import split


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_the_width_is_one_of_the_rows_own(counts: list[int]) -> None:
    assert split(counts) in {1, *counts}


def test_one_deep_row_is_computed_apart() -> None:
    assert split([9, 1, 1, 1, 1, 1, 1, 1]) == 1


def test_many_deep_rows_are_computed_with_the_others() -> None:
    assert split([3, 3, 3, 3, 3, 3, 1]) == 3
