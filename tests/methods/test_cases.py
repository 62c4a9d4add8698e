"""What broke other engines, as tests of every correct method: padding, ends, the cache.

The numbers are those of the list of cases. The oracle is plain decoding of each row
alone; in float64 equality is exact.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from engine.pairs.load import Pair
from engine.records.schema import RoundRecord
from engine.rounds.draft_policy import Fixed
from engine.runs.run import Run
from tests.cases import (
    PROMPTS,
    K,
    assert_equal_solo,
    every_method,
    every_speculative_method,
    heard,
    run,
    settings_of,
    solo,
    solo_without_end,
)
from tests.tiny import EOS, broken_forward, prompts_of, tiny_pair

# ---- padding and positions ------------------------------------------------------------


@every_method
def test_case_01_pad_is_eos_and_lengths_differ(method: str) -> None:
    pair = tiny_pair()
    assert pair.tokenizer.pad_id in pair.tokenizer.eos_ids
    assert_equal_solo(pair, method)


@every_method
def test_case_01_the_model_writes_the_pad_id(method: str) -> None:
    written = solo(tiny_pair(), budget=12)[1][2]
    pair = tiny_pair(pad_id=written)
    prompts = prompts_of([(*prompt.ids, written) for prompt in PROMPTS])
    assert_equal_solo(pair, method, prompts)


@every_method
def test_case_02_an_eos_inside_the_prompt_ends_nothing(method: str) -> None:
    pair = tiny_pair()
    prompts = prompts_of([(5, EOS, 7, 9), (EOS, EOS), (11, 12, 13, 14, EOS), (8,)])
    done = assert_equal_solo(pair, method, prompts)
    without = solo(pair, prompts_of([(5, 7, 9)]))
    assert done.outputs[0] != without[0]
    assert all(len(output) > 0 for output in done.outputs)


@every_method
def test_case_03_positions_of_a_padded_batch_are_each_rows_own(method: str) -> None:
    done = assert_equal_solo(tiny_pair(), method)
    for record in done.rounds:
        for row in record.rows:
            width = len(row.draft_token_ids) + 1
            assert row.positions == tuple(range(row.before - 1, row.before - 1 + width))


@every_method
def test_case_04_learned_positions_short_rows_beside_long_ones(method: str) -> None:
    prompts = prompts_of([(7,), tuple(range(3, 38)), (9, 10), tuple(range(5, 25))])
    assert_equal_solo(tiny_pair("gpt2"), method, prompts, batch_size=4)


# ---- ends -----------------------------------------------------------------------------


def pair_that_ends_at(place: int) -> Pair:
    """Draft = target; row 0's eos is what it would write at `place`, for the first time."""
    output = solo_without_end(tiny_pair(noise=0.0))[0]
    assert output[place] not in output[:place]
    return tiny_pair(noise=0.0, eos_ids=(output[place],))


@every_method
def test_case_05_eos_accepted_in_the_middle_of_a_block(method: str) -> None:
    pair = pair_that_ends_at(1)
    done = assert_equal_solo(pair, method, draft_tokens=4)
    assert done.reasons[0] == "eos"
    assert len(done.outputs[0]) == 2
    assert done.outputs[0][-1] in pair.tokenizer.eos_ids
    assert done.of_row(0)[-1].committed[-1] in pair.tokenizer.eos_ids


@every_method
def test_case_05_every_eos_of_the_model_counts(method: str) -> None:
    outputs = solo_without_end(tiny_pair(noise=0.0), PROMPTS)
    ends = (outputs[0][1], outputs[4][3], EOS)
    done = assert_equal_solo(tiny_pair(noise=0.0, eos_ids=ends), method)
    assert done.reasons[0] == "eos"
    assert done.reasons[4] == "eos"


@every_method
def test_case_06_eos_and_the_budget_inside_one_block(method: str) -> None:
    pair = pair_that_ends_at(1)
    inside = assert_equal_solo(pair, method, draft_tokens=4, max_new_tokens=2)
    assert inside.reasons[0] == "eos"
    past = assert_equal_solo(pair, method, draft_tokens=4, max_new_tokens=1)
    assert past.reasons[0] == "length"


@every_method
def test_case_07_a_budget_smaller_than_the_block(method: str) -> None:
    pair = tiny_pair(eos_ids=())
    done = assert_equal_solo(pair, method, max_new_tokens=2)
    assert [len(output) for output in done.outputs] == [2] * len(PROMPTS)
    assert set(done.reasons) == {"length"}


@every_method
def test_case_08_a_budget_of_nothing(method: str) -> None:
    done = run(tiny_pair(), method, max_new_tokens=0)
    assert done.outputs == [()] * len(PROMPTS)
    assert set(done.reasons) == {"length"}


@every_speculative_method
def test_case_09_the_draft_drafts_eos_and_the_target_rejects_it(method: str) -> None:
    pair = tiny_pair()
    assert pair.draft is not None

    def only_eos(call: int, feed: Any, logits: torch.Tensor) -> torch.Tensor:
        logits = logits.clone()
        logits[..., EOS] = 1e3
        return logits

    with broken_forward(pair.draft, only_eos):
        done = run(pair, method)
    assert done.outputs == solo(pair)
    assert all(set(row.draft_token_ids) <= {EOS} for record in done.rounds for row in record.rows)
    assert any(row.draft_token_ids and not row.accepted for row in done.of_row(1))


# ---- the cache ------------------------------------------------------------------------


@every_speculative_method
def test_case_10_after_a_ragged_rejection_the_cache_holds_only_what_was_accepted(
    method: str,
) -> None:
    pair = tiny_pair()
    clean, _ = heard(pair, settings_of("autoregressive", batch_size=1))
    found, rounds = heard(pair, settings_of(method))
    counts = [{row.accepted for row in record.rows} for record in rounds]
    assert method == "rollback" or any(len(count) > 1 for count in counts), "nothing was ragged"
    for key, logits in found.items():
        torch.testing.assert_close(logits, clean[key], rtol=0.0, atol=1e-10)


@every_speculative_method
def test_case_11_positions_advance_by_accepted_plus_one(method: str) -> None:
    done = run(tiny_pair(), method)
    for index in range(len(PROMPTS)):
        rounds = done.of_row(index)
        for now, later in pairwise(rounds):
            assert later.positions[0] - now.positions[0] == now.accepted + 1
            assert later.before == now.before + now.accepted + 1


@every_speculative_method
def test_case_12_rows_with_different_k_in_one_round(method: str) -> None:
    """Rows near the model's context may draft less than their neighbours."""
    pair = tiny_pair("gpt2", context=24, eos_ids=())
    prompts = prompts_of([range(3, 23), (5, 6), range(10, 31), (9, 3, 8)])
    done = assert_equal_solo(pair, method, prompts, batch_size=4)
    counts = [{len(row.draft_token_ids) for row in record.rows} for record in done.rounds]
    assert any(len(count) > 1 for count in counts)


@every_speculative_method
def test_case_13_draft_equals_target_everything_is_accepted(method: str) -> None:
    pair = tiny_pair(noise=0.0, eos_ids=())
    done = assert_equal_solo(pair, method, max_new_tokens=16)
    for record in done.rounds:
        for row in record.rows:
            assert row.accepted == len(row.draft_token_ids)
            left = 16 - (row.before - len(PROMPTS[row.row].ids))
            assert len(row.committed) == min(K + 1, left)


@every_speculative_method
@pytest.mark.parametrize("plan", [(0, 3, 0, 3), (3, 0, 0, 0, 3), (0, 0, 2, 0, 1, 3)])
def test_case_14_a_round_without_drafting_leaves_the_draft_in_step(
    method: str, plan: tuple[int, ...]
) -> None:
    pair = tiny_pair(noise=0.0, eos_ids=())
    job = Run(pair, settings_of(method, batch_size=6, max_new_tokens=30), PROMPTS)
    rounds = []
    chosen = job.loop.policy
    assert isinstance(chosen, Fixed)
    chosen.draft_tokens = plan[0]
    for record in job.records():
        if isinstance(record, RoundRecord):
            rounds.append(record)
            chosen.draft_tokens = plan[len(rounds) % len(plan)]
    assert [row.output_ids for row in job.summary().rows] == solo(pair, budget=30)
    assert all(record.violations == () for record in rounds)
    wanted = [
        max(len(row.draft_token_ids) for row in record.rows) for record in rounds[: len(plan)]
    ]
    assert wanted == list(plan)
    for record in rounds:
        for row in record.rows:
            assert row.accepted == len(row.draft_token_ids)
