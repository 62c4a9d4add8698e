"""The oracle: each row alone, the gap of every token, and a tolerance that is measured."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
import torch

from engine.config.errors import UserError
from engine.config.settings import Sampling, Settings
from engine.evaluation.oracle import Oracle
from engine.pairs.load import Pair
from engine.records.divergence import attribute
from engine.records.fold import fold_rows
from tests.cases import BUDGET, CORRECT, PROMPTS, B, K, run
from tests.tiny import broken_forward, mixed_prompts, prompts_of, tiny_pair

SETTINGS = Settings(batch_size=B, draft_tokens=K, max_new_tokens=BUDGET)
STRICT = msgspec.structs.replace(SETTINGS, strict=True)


def answers(pair: Pair, settings: Settings = SETTINGS, prompts: Any = PROMPTS) -> Any:
    return list(Oracle(pair).answers(prompts, settings))


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_it_equals_the_library_decoding_each_row(kind: str) -> None:
    pair = tiny_pair(kind)
    reference = deepcopy(tiny_pair(kind, seed=0).target.hf)
    reference.set_attn_implementation("sdpa")  # the library's own, and not ours
    for prompt, answer in zip(PROMPTS, answers(pair), strict=True):
        ids = list(prompt.ids)
        for place, token in enumerate(answer.output_ids):
            with torch.inference_mode():
                logits = reference(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
            best = logits.topk(2)
            assert int(best.indices[0]) == token
            gap = float(best.values[0] - best.values[1])
            assert answer.gaps[place] == pytest.approx(gap, abs=1e-9)
            ids.append(token)
        assert answer.finish_reason == ("eos" if answer.output_ids[-1] == 2 else "length")
        assert len(answer.gaps) == len(answer.output_ids)


def test_answers_are_kept_and_given_in_order() -> None:
    pair = tiny_pair()
    oracle = Oracle(pair)
    calls = []

    def count(call: int, feed: Any, logits: torch.Tensor) -> torch.Tensor:
        calls.append(call)
        return logits

    with broken_forward(pair.target, count):
        first = list(oracle.answers(PROMPTS, SETTINGS))
        before = len(calls)
        again = list(oracle.answers(PROMPTS[::-1], SETTINGS))
        assert len(calls) == before
        list(oracle.answers(PROMPTS, msgspec.structs.replace(SETTINGS, max_new_tokens=3)))
        assert len(calls) > before
    assert [answer.index for answer in first] == [prompt.index for prompt in PROMPTS]
    assert again == first[::-1]


def test_a_prompt_that_comes_twice_is_decoded_once() -> None:
    pair = tiny_pair()
    twice = prompts_of([PROMPTS[0].ids, PROMPTS[0].ids])
    first, second = answers(pair, prompts=twice)
    assert first.output_ids == second.output_ids
    assert (first.index, second.index) == (0, 1)


def test_progress_counts_rows_and_tokens_and_may_cancel() -> None:
    seen: list[tuple[int, int]] = []
    done = list(
        Oracle(tiny_pair()).answers(PROMPTS, SETTINGS, lambda rows, n: seen.append((rows, n)))
    )
    assert seen == sorted(seen)
    assert seen[-1] == (len(PROMPTS), sum(len(answer.output_ids) for answer in done))

    def cancel(rows: int, tokens: int) -> None:
        if tokens > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(Oracle(tiny_pair()).answers(PROMPTS, SETTINGS, cancel))


def test_it_is_greedy() -> None:
    warm = msgspec.structs.replace(SETTINGS, sampling=Sampling(temperature=1.0))
    with pytest.raises(UserError, match="temperature"):
        answers(tiny_pair(), warm)


def test_the_tolerance_is_twice_what_the_shapes_differ_by() -> None:
    exact = Oracle(tiny_pair()).tolerance(PROMPTS, SETTINGS)
    assert 0.0 <= exact < 1e-11
    single = Oracle(tiny_pair(dtype=torch.float32)).tolerance(PROMPTS, SETTINGS)
    assert 1e-7 < single < 1e-3
    half = Oracle(tiny_pair(dtype=torch.bfloat16)).tolerance(PROMPTS, SETTINGS)
    assert 1e-3 < half < 1.0


def test_a_logit_that_the_other_shape_changes_is_within_the_tolerance() -> None:
    """The wide block's logits are moved by 0.25: twice that is the tolerance."""
    pair = tiny_pair()

    def wide(call: int, feed: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits + 0.25 if feed.ids.shape[1] > 1 and logits.shape[1] > 1 else logits

    oracle = Oracle(pair)
    list(oracle.answers(PROMPTS, SETTINGS))
    with broken_forward(pair.target, wide):
        assert oracle.tolerance(PROMPTS, SETTINGS) == pytest.approx(0.5, abs=1e-9)


def test_rows_that_cannot_run_have_empty_answers() -> None:
    prompts = (msgspec.structs.replace(PROMPTS[0], error="too long"), *PROMPTS[1:])
    oracle = Oracle(tiny_pair())
    first = next(oracle.answers(prompts, SETTINGS))
    assert (first.output_ids, first.finish_reason, first.error) == ((), "error", "too long")
    assert oracle.tolerance(prompts, SETTINGS) < 1e-11
    nothing = msgspec.structs.replace(SETTINGS, max_new_tokens=0)
    assert [answer.output_ids for answer in oracle.answers(PROMPTS, nothing)] == [()] * 6
    assert oracle.tolerance(PROMPTS, nothing) == 0.0


# ---- strict mode, and rounding -----------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_strict_slots_equal_the_strict_oracle_in_every_dtype(dtype: torch.dtype) -> None:
    pair = tiny_pair(dtype=dtype)
    prompts = mixed_prompts(8, seed=9)
    strict = msgspec.structs.replace(STRICT, max_new_tokens=20)
    expected = [answer.output_ids for answer in answers(pair, strict, prompts)]
    for method in ("slotspec", "autoregressive"):
        done = run(pair, method, prompts, strict=True, max_new_tokens=20)
        assert done.outputs == expected
        assert done.violations == []


def test_the_strict_answer_does_not_depend_on_companions() -> None:
    pair = tiny_pair(dtype=torch.bfloat16)
    together = answers(pair, STRICT)
    longest = max(PROMPTS, key=lambda prompt: len(prompt.ids))
    for prompt in PROMPTS[:3]:
        alone = answers(pair, STRICT, (prompt, longest))
        assert alone[0].output_ids == together[prompt.index].output_ids
        assert alone[0].gaps == together[prompt.index].gaps


@pytest.mark.parametrize("strict", [False, True])
def test_in_bfloat16_every_divergence_is_numeric(strict: bool) -> None:
    pair = tiny_pair(dtype=torch.bfloat16)
    prompts = mixed_prompts(10, seed=1)
    settings = msgspec.structs.replace(SETTINGS, max_new_tokens=24, strict=strict)
    oracle = Oracle(pair)
    expected = list(oracle.answers(prompts, settings))
    tolerance = oracle.tolerance(prompts, settings)
    for method in CORRECT:
        done = run(pair, method, prompts, max_new_tokens=24, strict=strict)
        found = attribute(fold_rows(done.rounds), expected, tolerance)
        assert {divergence.cause for divergence in found} <= {"numeric"}
