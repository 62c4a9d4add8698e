"""`--draft-tokens auto`: the K that makes most tokens a second, found by the clock."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config.settings import LARGEST_AUTO, Settings
from engine.drafting.auto_k import STEPS, AutoPolicy
from engine.evaluation.oracle import Oracle
from engine.records.row import RowRound
from engine.records.schema import Phases, RoundRecord, Summary
from engine.runs.run import Run
from tests.tiny import mixed_prompts, tiny_pair

ROWS = 8


def finished(k: int, accepted: list[int], seconds: float, text: int = 0) -> RoundRecord:
    """A round with these draft tokens accepted in each row; the first `text` rows drafted text."""
    rows = tuple(
        RowRound(
            row=row,
            draft_token_ids=(1,) * k,
            accepted=count,
            committed=(1,) * (count + 1),
            by_text=row < text,
        )
        for row, count in enumerate(accepted)
    )
    return RoundRecord(round=1, rows=rows, draft_tokens=k, seconds=Phases(verify=seconds))


def decode(
    chance: float, *, token: float, step: float, rounds: int = 200, seed: int = 0
) -> tuple[float, list[int]]:
    """Rounds of a made-up machine: 40 ms a verification and `token` ms for each token fed,
    `step` ms a draft step, ±5 %. Returns tokens per second and the K of each round."""
    rng = random.Random(seed)
    policy = AutoPolicy()
    seconds, tokens, chosen = 0.0, 0, []
    for _ in range(rounds):
        k = policy.choose(ROWS).draft_tokens
        accepted = []
        for _ in range(ROWS):
            count = 0
            while count < k and rng.random() < chance:
                count += 1
            accepted.append(count)
        spent = 0.040 + token / 1e3 * ROWS * (1 + k) + k * step / 1e3
        record = finished(k, accepted, rng.uniform(0.95, 1.05) * spent)
        policy.observe(record)
        seconds += record.seconds.total
        tokens += sum(accepted) + ROWS
        chosen.append(k)
    return tokens / seconds, chosen


def steady(chance: float, k: int, *, token: float, step: float) -> float:
    """Tokens per second of a fixed K, as the chances say."""
    tokens = ROWS * sum(chance**j for j in range(k + 1))
    return tokens / (0.040 + token / 1e3 * ROWS * (1 + k) + k * step / 1e3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("chance", [0.0, 0.1, 0.3])
def test_where_drafting_does_not_pay_little_is_lost(chance: float, seed: int) -> None:
    pace, chosen = decode(chance, token=1.3, step=25.0, seed=seed)
    assert pace >= 0.94 * steady(chance, 0, token=1.3, step=25.0)
    assert chosen[-50:].count(0) >= 45


@pytest.mark.parametrize("seed", range(5))
def test_where_drafting_pays_k_is_near_the_best(seed: int) -> None:
    pace, _ = decode(0.8, token=0.2, step=4.0, rounds=400, seed=seed)
    best = max(steady(0.8, k, token=0.2, step=4.0) for k in STEPS)
    assert pace >= 0.9 * best
    assert pace >= 1.5 * steady(0.8, 0, token=0.2, step=4.0)


def test_every_choice_says_why() -> None:
    policy = AutoPolicy()
    reasons = set()
    for _ in range(60):
        choice = policy.choose(2)
        assert choice.why is not None
        reasons.add(choice.why.reason)
        policy.observe(finished(choice.draft_tokens, [choice.draft_tokens] * 2, 0.05))
    assert reasons == {"measuring", "trial", "fastest"}


def test_text_that_is_drafted_anyway_is_no_merit_of_k() -> None:
    """Half the rows draft text, all of which is accepted; the model is always wrong."""
    policy = AutoPolicy(free_text=True)
    chosen = []
    for _ in range(80):
        k = policy.choose(ROWS).draft_tokens
        policy.observe(finished(k, [4, 4, 4, 4, 0, 0, 0, 0], 0.040 + 0.01 * k, text=4))
        chosen.append(k)
    assert chosen[-40:].count(0) >= 36


def test_few_rows_are_measured_for_themselves() -> None:
    """Drafting pays for one row, and not for eight."""
    policy = AutoPolicy()
    chosen: dict[int, list[int]] = {8: [], 1: []}
    for rows in (8, 1):
        for _ in range(60):
            k = policy.choose(rows).draft_tokens
            accepted = [min(k, 1)] * rows
            policy.observe(finished(k, accepted, 0.040 + 0.02 * k * (rows > 1)))
            chosen[rows].append(k)
    assert chosen[8][-20:].count(0) >= 18
    assert chosen[1][-20:].count(0) <= 2


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0.0, 10.0)), min_size=1, max_size=60))
def test_auto_chooses_whatever_the_clock_says(rounds: list[tuple[int, float]]) -> None:
    """Also where it stands still, for some rounds or for all."""
    policy = AutoPolicy()
    for rows, seconds in rounds:
        k = policy.choose(rows).draft_tokens
        assert 0 <= k <= LARGEST_AUTO
        policy.observe(finished(k, [k] * rows, seconds))


@pytest.mark.parametrize("method", ["eqspec", "rollback", "slotspec", "exspec"])
def test_auto_changes_no_token(method: str) -> None:
    pair, prompts = tiny_pair(noise=0.08), mixed_prompts(7, seed=2)
    settings = Settings(method=method, batch_size=3, draft_tokens="auto", max_new_tokens=24)
    *records, summary = Run(pair, settings, prompts).records()
    assert isinstance(summary, Summary)
    answers = Oracle(pair).answers(prompts, Settings(max_new_tokens=24))
    assert [row.output_ids for row in summary.rows] == [a.output_ids for a in answers]
    rounds = [record for record in records if isinstance(record, RoundRecord)]
    assert not [violation for record in rounds for violation in record.violations]
    assert len({record.draft_tokens for record in rounds}) > 1
