"""Tokens that only one of the two tokenizers knows: never drafted, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import torch

from engine.config.settings import Sampling, Settings
from engine.evaluation.oracle import Oracle
from engine.records.schema import RoundRecord
from engine.runs.run import Run
from tests.cases import SPECULATIVE
from tests.rounds import test_sampling
from tests.rounds.test_sampling import chi_squared, drawn
from tests.tiny import Finished, mixed_prompts, tiny_pair

NEVER = (5, 9, 13, 17, 21, 25, 29, 33)
PAIR = replace(tiny_pair(eos_ids=()), never=torch.tensor(NEVER))
PROMPTS = mixed_prompts(4)


def settings_of(method: str, sampling: Sampling) -> Settings:
    return Settings(
        method=method, batch_size=3, draft_tokens=3, max_new_tokens=16, sampling=sampling
    )


def drafted(done: Finished) -> set[int]:
    rows = [row for record in done.rounds for row in record.rows]
    return {token for row in rows for token in row.draft_token_ids}


@pytest.mark.parametrize("method", SPECULATIVE)
def test_greedy_outputs_are_the_oracles(method: str) -> None:
    settings = settings_of(method, Sampling())
    done = Finished(PAIR, settings, PROMPTS)
    answers = Oracle(PAIR).answers(PROMPTS, settings)
    assert done.outputs == [answer.output_ids for answer in answers]
    free = Finished(replace(PAIR, never=None), settings, PROMPTS)
    assert drafted(free) & set(NEVER), "else the test would show nothing"
    assert not drafted(done) & set(NEVER)
    assert {token for output in done.outputs for token in output} & set(NEVER), "targets may"
    assert not done.violations


@pytest.mark.parametrize("method", SPECULATIVE)
def test_sampled_outputs_follow_the_targets_distribution(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = test_sampling.pair()
    pair = replace(whole, never=torch.tensor([1, 4]))
    monkeypatch.setattr(test_sampling, "pair", lambda: pair)
    monkeypatch.setattr(test_sampling, "ROWS", 650)
    sampling = msgspec.structs.replace(Sampling(temperature=1.0), seed=SPECULATIVE.index(method))
    outputs, accepted, _ = drawn(method, 2, None, sampling)
    assert chi_squared(outputs, sampling).p > 1e-3
    assert accepted > 0
    assert {token for output in outputs for token in output} >= {1, 4}


def test_an_inspected_run_gives_them_no_probability() -> None:
    settings = msgspec.structs.replace(
        settings_of("eqspec", Sampling(temperature=1.0)), inspect=True
    )
    records = [r for r in Run(PAIR, settings, PROMPTS).records() if isinstance(r, RoundRecord)]
    tests = [test for record in records for row in record.rows for test in row.tests]
    assert tests
    assert all(test.token not in NEVER and test.draft_prob > 0 for test in tests)
