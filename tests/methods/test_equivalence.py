"""Every correct method equals the oracle, whatever B, K, W, lengths and budgets are."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config.methods import CORRECT_METHODS
from engine.config.settings import Settings
from engine.evaluation.oracle import Oracle
from engine.pairs.load import Pair, load_pair
from engine.pairs.registry import PairRequest
from engine.records.schema import Prompt, RoundRecord, Summary
from engine.runs.run import Run

SPECULATING = [name for name in CORRECT_METHODS if name != "autoregressive"]


@lru_cache
def toy(draft: str | None = None) -> tuple[Pair, Oracle]:
    pair = load_pair(PairRequest(name="toy", draft=draft), device="cpu", dtype="float64", threads=1)
    return pair, Oracle(pair)


prompt_lists = st.lists(
    st.lists(st.integers(3, 120), min_size=1, max_size=24), min_size=1, max_size=7
)


@pytest.mark.parametrize("method", SPECULATING)
@settings(max_examples=200, deadline=None)
@given(
    ids=prompt_lists,
    batch_size=st.integers(1, 8),
    window=st.integers(1, 8),
    draft_tokens=st.integers(0, 7),
    budget=st.integers(0, 20),
    draft=st.sampled_from([None, "lookup"]),
    strict=st.booleans(),
)
def test_every_configuration_equals_the_oracle(
    method: str,
    ids: list[list[int]],
    batch_size: int,
    window: int,
    draft_tokens: int,
    budget: int,
    draft: str | None,
    strict: bool,
) -> None:
    pair, oracle = toy(draft)
    prompts = tuple(Prompt(index=i, ids=tuple(row)) for i, row in enumerate(ids))
    chosen = Settings(
        method=method,
        batch_size=batch_size,
        window=window,
        draft_tokens=draft_tokens,
        max_new_tokens=budget,
        strict=strict,
    )
    *records, summary = Run(pair, chosen, prompts).records()
    assert isinstance(summary, Summary)
    # in float64 the shapes make no difference that could be seen: one oracle serves all
    alone = oracle.answers(prompts, Settings(max_new_tokens=budget))
    for row, answer in zip(summary.rows, alone, strict=True):
        assert row.output_ids == answer.output_ids
        assert row.finish_reason == answer.finish_reason
    rounds = [record for record in records if isinstance(record, RoundRecord)]
    assert not [violation for record in rounds for violation in record.violations]
    for record in rounds:
        for part in record.rows:
            assert 0 <= part.accepted <= len(part.draft_token_ids) <= draft_tokens
            assert len(part.committed) <= part.accepted + 1
            if draft_tokens and record.kind == "slots":
                assert part.delta == 0
                assert part.padding == 0
