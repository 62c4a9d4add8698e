"""Whatever drafts, and however K is chosen: what is written stays the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.config.settings import Sampling
from tests.cases import every_speculative_method, run, solo
from tests.tiny import prompts_of, tiny_pair

REPETITIVE = prompts_of([(5, 6, 7, 8) * 3, (9, 3, 9, 3, 9), (4,), (11, 12, 13, 11, 12), (30, 4, 4)])


@every_speculative_method
def test_draft_tokens_from_the_rows_prompt_lookup(method: str) -> None:
    pair = replace(tiny_pair(eos_ids=()), draft=None)
    done = run(pair, method, REPETITIVE, max_new_tokens=20)
    assert done.outputs == solo(pair, REPETITIVE, 20)
    assert done.violations == []
    rows = [row for record in done.rounds for row in record.rows]
    assert any(row.draft_token_ids and row.accepted for row in rows)
    assert any(not row.draft_token_ids for row in rows), "a row without a match drafts nothing"


@every_speculative_method
@pytest.mark.parametrize("draft", ["model", "lookup"])
def test_k_chosen_by_cost(method: str, draft: str) -> None:
    pair = tiny_pair(eos_ids=())
    if draft == "lookup":
        pair = replace(pair, draft=None)
    done = run(pair, method, REPETITIVE, draft_tokens="auto", max_new_tokens=24)
    assert done.outputs == solo(pair, REPETITIVE, 24)
    assert done.violations == []
    chosen = {record.draft_tokens for record in done.rounds}
    assert draft == "lookup" or len(chosen) > 1, "a model's draft tokens cost something"
    assert all(record.draft_choice for record in done.rounds)


@every_speculative_method
def test_sampling_with_lookup_repeats_by_seed(method: str) -> None:
    pair = replace(tiny_pair(eos_ids=()), draft=None)
    warm = Sampling(temperature=0.7, seed=3)
    first = run(pair, method, REPETITIVE, sampling=warm)
    assert first.outputs == run(pair, method, REPETITIVE, sampling=warm).outputs
    assert first.violations == []
