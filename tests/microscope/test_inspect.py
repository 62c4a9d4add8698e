"""An inspected run tells how each token was verified, and changes nothing by recording it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.config.methods import METHODS
from engine.config.settings import Sampling
from engine.records.row import RowRound
from engine.records.schema import RoundRecord
from engine.rounds.sampling import warp
from engine.runs.run import Run
from tests.cases import PROMPTS, heard, run, settings_of
from tests.tiny import tiny_pair

PAIR = tiny_pair()
SAMPLED = Sampling(temperature=0.8, top_k=6, seed=3)


def rows_of(method: str, **other: Any) -> list[RowRound]:
    return [
        row for record in run(PAIR, method, inspect=True, **other).rounds for row in record.rows
    ]


@pytest.mark.parametrize("method", METHODS)
def test_inspecting_changes_no_token(method: str) -> None:
    assert run(PAIR, method, inspect=True).outputs == run(PAIR, method).outputs


def test_inspecting_changes_no_sample() -> None:
    plain = run(PAIR, "eqspec", sampling=SAMPLED)
    assert run(PAIR, "eqspec", inspect=True, sampling=SAMPLED).outputs == plain.outputs


def test_a_run_that_is_not_inspected_says_nothing() -> None:
    rows = [row for record in run(PAIR, "eqspec").rounds for row in record.rows]
    assert not any(row.tests or row.choice for row in rows)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "dsd"])
def test_greedy_the_targets_best_token_is_the_one_that_counts(method: str) -> None:
    for row in rows_of(method):
        assert len(row.tests) == len(row.draft_token_ids)
        assert row.choice is not None
        assert len(row.choice.top) == 5
        for place, test in enumerate(row.tests):
            assert test.token == row.draft_token_ids[place]
            assert 0.0 <= test.draft_prob <= 1.0
            assert test.top[0][1] >= test.target_prob
            if test.accepted:
                assert test.top[0][0] == test.token
                assert test.top[0][1] == pytest.approx(test.target_prob)
        if row.accepted < len(row.tests) and method != "rollback":
            assert not row.tests[row.accepted].accepted
            assert row.tests[row.accepted].top == row.choice.top
        if row.bonus is not None and method != "rollback":
            assert row.choice.top[0][0] == row.bonus


def test_the_figures_are_the_targets_own() -> None:
    settings = settings_of("eqspec", inspect=True)
    logits, rounds = heard(PAIR, settings)
    for record in rounds:
        for row in record.rows:
            probs = logits[row.row, row.before].softmax(-1)
            best_tokens = row.tests[0].top if row.tests else row.choice.top  # type: ignore[union-attr]
            best = probs.topk(5)
            assert [token for token, _ in best_tokens] == best.indices.tolist()
            assert [p for _, p in best_tokens] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_sampled_draws_are_shown_with_what_they_were_drawn_from() -> None:
    rejected = 0
    for row in rows_of("slotspec", sampling=SAMPLED):
        assert row.choice is not None
        assert len(row.choice.top) <= 6
        if row.bonus is None:
            continue
        assert row.choice.draw is not None
        if row.accepted < len(row.draft_token_ids):
            rejected += 1
            assert row.choice.residual_prob is not None
            assert 0.0 < row.choice.residual_prob <= 1.0
            test = row.tests[row.accepted]
            assert test.draw is not None
            assert test.draw * test.draft_prob >= test.target_prob
        else:
            assert row.choice.residual_prob is None
    assert rejected


def test_without_a_draft_model_every_draft_token_is_certain() -> None:
    from dataclasses import replace

    pair = replace(PAIR, draft=None)
    job = Run(pair, settings_of("eqspec", inspect=True), PROMPTS)
    records = [record for record in job.records() if isinstance(record, RoundRecord)]
    tests = [test for record in records for row in record.rows for test in row.tests]
    assert all(test.draft_prob == 1.0 for test in tests)


@pytest.mark.parametrize("method", ["eqspec", "bsp", "dsd"])
def test_a_greedy_draft_drafts_its_best(method: str) -> None:
    tests = [test for row in rows_of(method) for test in row.tests]
    assert tests
    assert all(test.draft_prob >= 1 / 40 - 1e-6 for test in tests), "the best of 40 tokens"
    assert all(0.0 < test.draft_prob < 1.0 for test in tests)


def test_the_best_tokens_have_their_texts() -> None:
    job = Run(PAIR, settings_of("eqspec", inspect=True), PROMPTS)
    known: set[int] = set()
    for record in job.records():
        known |= set(getattr(record, "pieces", {}))
        if isinstance(record, RoundRecord):
            for row in record.rows:
                assert {token for test in row.tests for token, _ in test.top} <= known


def test_warp_is_what_a_sampled_top_is_taken_from() -> None:
    settings = settings_of("eqspec", inspect=True, sampling=SAMPLED)
    logits, rounds = heard(PAIR, settings)
    row = rounds[0].rows[0]
    probs = warp(logits[row.row, row.before], SAMPLED)
    assert row.tests[0].top[0][0] == int(torch.argmax(probs))
