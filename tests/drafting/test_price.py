"""What a draft token has to be worth: loads, costs, prices, depths, and who is hurried."""

from __future__ import annotations

import random
from itertools import accumulate
from operator import mul
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config.settings import LARGEST_AUTO
from engine.drafting.auto_k.adaptive import Adaptive, Selective
from engine.drafting.auto_k.costs import Costs
from engine.drafting.auto_k.fit import Fit
from engine.drafting.auto_k.price import FREE, LEAST, Price, depths
from engine.drafting.auto_k.stragglers import holding_up
from engine.models.block_cost import APART, CELL, load, split
from engine.records.row import RowRound
from engine.records.schema import Phases, RoundRecord


def finished(counts: list[int], kept: int = 1, **seconds: float) -> RoundRecord:
    """A round in which rows fed so many tokens each."""
    rows = tuple(
        RowRound(row=row, committed=(1,) * kept, draft_token_ids=(1,) * (count - 1))
        for row, count in enumerate(counts)
    )
    return RoundRecord(round=1, rows=rows, draft_tokens=max(counts) - 1, seconds=Phases(**seconds))


# ---- load ------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_no_load_is_less_than_the_tokens_and_none_more_than_the_rectangle(
    counts: list[int],
) -> None:
    rectangle = sum(counts) + CELL * len(counts) * max(counts)
    assert sum(counts) < load(counts) <= rectangle + 1e-9


def test_one_deep_row_is_computed_apart() -> None:
    assert split([9, 1, 1, 1, 1, 1, 1, 1]) == 1
    assert load([9, 1, 1, 1, 1, 1, 1, 1]) == pytest.approx(16 + 8 * CELL + APART + 8 * CELL)


def test_many_deep_rows_are_computed_with_the_others() -> None:
    assert split([3, 3, 3, 3, 3, 3, 1]) == 3


# ---- costs -----------------------------------------------------------------------------


def test_a_line_is_found_whatever_the_noise() -> None:
    rng = random.Random(1)
    fit = Fit()
    for _ in range(60):
        amount = rng.uniform(8, 40)
        noise = 5.0 if rng.random() < 0.1 else rng.uniform(0.97, 1.03)  # now and then a jam
        fit.observe(amount, noise * (0.030 + 0.001 * amount))
    assert fit.slope == pytest.approx(0.001, rel=0.2)
    assert fit.seconds(20) == pytest.approx(0.050, rel=0.05)


def test_a_line_never_falls() -> None:
    fit = Fit()
    for amount in (10, 20, 30):
        fit.observe(amount, 1.0 / amount)
    assert fit.slope == 0.0


def test_an_unknown_price_asks_for_the_chance_that_is_given() -> None:
    price = Costs().price(0.2)
    assert price.pays(0.2)
    assert not price.pays(0.19)


def measured(token: float) -> Costs:
    """Costs of four rows: 40 ms a verification, and so many ms for each token of load."""
    costs = Costs()
    for each in (1, 2, 3, 1, 2, 3):
        costs.observe(finished([each] * 4, verify=0.040 + token / 1e3 * load([each] * 4)))
    return costs


def test_a_draft_token_pays_from_the_chance_that_covers_its_cost() -> None:
    price = measured(2.0).price(0.2)
    assert price.token == pytest.approx(0.002)
    # one token more costs 2 ms; without draft tokens 4 rows make one each in about 49
    assert price.rows * price.row == pytest.approx(0.049, abs=0.004)
    assert price.least == pytest.approx(0.16, abs=0.02)


def test_where_one_row_matters_the_whole_round_is_its_own() -> None:
    costs = measured(2.0)
    of_four = costs.price(0.2)
    costs.wanted = 1
    of_one = costs.price(0.2)
    assert of_one.row == pytest.approx(4 * of_four.row)
    assert of_one.least < of_four.least


def test_catching_up_after_a_long_rest_is_no_measure_of_a_draft_step() -> None:
    costs = Costs()
    costs.observe(finished([2, 2], verify=0.040, draft=0.005))
    before = costs.draft_tokens_worth()
    assert before > 0.0
    for _ in range(5):
        costs.caught_up = 60
        costs.observe(finished([2, 2], verify=0.040, draft=0.080))
    assert costs.draft_tokens_worth() < before, "the rounds were longer, not the draft's steps"


def test_a_round_in_which_the_model_was_not_asked_says_nothing_of_it() -> None:
    costs = Costs()
    costs.observe(finished([2, 2], verify=0.040, draft=0.005))
    before = costs.draft_tokens_worth()
    for _ in range(9):
        costs.skipped = True
        costs.observe(finished([2, 2], verify=0.045, draft=0.0))
    assert costs.draft_tokens_worth() == pytest.approx(before)


# ---- price -----------------------------------------------------------------------------


def test_the_deeper_the_more_is_asked_for() -> None:
    """After two sure draft tokens the row makes many tokens a second: a third one has to be
    better than what the next round would make of it."""
    price = Price(token=0.2, row=1.0)
    assert price.pays(0.3)
    assert not price.pays(0.3, [0.95, 0.9])


@pytest.mark.parametrize("chance", [0.3, 0.5, 0.7, 0.9])
def test_the_depth_is_the_best_for_a_row(chance: float) -> None:
    """If what is ahead never changes, no other depth makes more tokens a second."""
    price = Price(token=0.15, row=1.0)
    chances = [chance**j for j in range(1, 9)]

    def pace(depth: int) -> float:
        return (1 + sum(chances[:depth])) / (price.row + depth * price.token)

    assert pace(price.depth(chances)) == pytest.approx(max(map(pace, range(9))))


def test_hopeless_draft_tokens_are_not_made_however_cheap() -> None:
    assert Price(token=0.0, row=1.0).depth([LEAST / 2]) == 0


def test_what_is_free_is_all_drafted() -> None:
    assert depths([[0.9, 0.1, 0.01], [], [0.001]], FREE) == [3, 0, 1]


def test_a_row_goes_deep_alone_only_if_it_is_worth_it() -> None:
    price = Price(token=0.1, row=1.0, rows=8)
    shallow = [[0.5]] * 7
    assert depths([[0.98**j for j in range(1, 9)], *shallow], price)[0] == 8
    assert depths([[0.5, 0.35, 0.3, 0.25], *shallow], price)[0] < 4


@given(
    st.lists(
        st.lists(st.floats(0.3, 1.0), max_size=8).map(
            lambda steps: [float(product) for product in accumulate(steps, mul)]
        ),
        min_size=1,
        max_size=8,
    ),
    st.floats(0.01, 0.5),
)
def test_drafting_is_never_worse_than_not(rows: list[list[float]], token: float) -> None:
    price = Price(token=token, row=1.0, rows=len(rows))
    made = depths(rows, price)
    assert all(0 <= depth <= len(chances) for depth, chances in zip(made, rows, strict=True))
    tokens = len(rows) + sum(sum(c[:d]) for c, d in zip(rows, made, strict=True))
    more = load([depth + 1 for depth in made]) - load([1] * len(rows))
    assert tokens / (len(rows) + token * more) >= 1.0 - 1e-9


MEASURED = st.one_of(st.just(0.0), st.floats(0.0, 10.0), st.floats(0.0, 1e-300))
"""Seconds as a clock tells them: none, some, or hardly any."""

CHANCES = st.lists(
    st.lists(st.floats(0.0, 1.0), max_size=8).map(
        lambda steps: [float(product) for product in accumulate(steps, mul)]
    ),
    max_size=8,
)


def test_where_a_round_costs_nothing_but_a_draft_token_does_none_is_made() -> None:
    assert depths([[0.5]], Price(token=0.001, row=0.0, rows=1)) == [0]


def test_where_nothing_costs_anything_all_is_drafted_that_is_not_hopeless() -> None:
    assert depths([[0.9, 0.5, LEAST / 2], [0.2]], Price(token=0.0, row=0.0, rows=2)) == [2, 1]


@given(CHANCES, MEASURED, MEASURED, st.integers(0, 8))
def test_any_price_has_its_depths(
    rows: list[list[float]], token: float, row: float, count: int
) -> None:
    price = Price(token=token, row=row, rows=count)
    made = depths(rows, price)
    assert len(made) == len(rows)
    for chances, depth in zip(rows, made, strict=True):
        assert 0 <= depth <= price.depth(chances) <= len(chances)
    assert LEAST <= price.least <= 1.0


@given(st.lists(st.tuples(st.integers(0, 5), MEASURED, MEASURED), min_size=1, max_size=40))
def test_auto_chooses_whatever_the_clock_says(rounds: list[tuple[int, float, float]]) -> None:
    """Also where it stands still, for some rounds or for all."""
    batch: list[Any] = [SimpleNamespace(index=row, remaining=50) for row in range(4)]
    for chooser in (Adaptive(Costs()), Selective(Costs())):
        for k, verify, draft in rounds:
            assert 0 <= chooser.choose(batch, refilled=True).draft_tokens <= LARGEST_AUTO
            chooser.observe(finished([k + 1] * 4, verify=verify, draft=draft))


# ---- stragglers ------------------------------------------------------------------------


def test_a_row_that_ends_before_the_last_anyway_is_not_hurried() -> None:
    # at two tokens a round the first row needs ten rounds; the last one seven at one
    assert holding_up([20, 12, 10, 7], pace=2.0) == [True, True, True, False]


def test_without_speculation_only_the_last_ones_matter() -> None:
    assert holding_up([9, 8, 9], pace=1.0) == [True, False, True]


def test_nobody_is_nobody() -> None:
    assert holding_up([], pace=1.0) == []
