"""What the tests of the cases share: settings, the oracle's outputs, and a comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.config.methods import CORRECT_METHODS, METHODS
from engine.config.settings import Settings
from engine.evaluation.oracle import Oracle
from engine.pairs.load import Pair
from engine.records.schema import Prompt, RoundRecord
from engine.runs.run import Run
from engine.text.tokenizer import Tokenizer
from tests.tiny import Finished, mixed_prompts

CORRECT = list(CORRECT_METHODS)
SPECULATIVE = [name for name in CORRECT if METHODS[name].drafts]
every_method = pytest.mark.parametrize("method", CORRECT)
every_speculative_method = pytest.mark.parametrize("method", SPECULATIVE)

PROMPTS = mixed_prompts(6, seed=4, longest=16)
K, B, BUDGET = 3, 3, 12


def settings_of(method: str, **other: Any) -> Settings:
    chosen = {"batch_size": B, "draft_tokens": K, "max_new_tokens": BUDGET, **other}
    return Settings(method=method, **chosen)


def run(pair: Pair, method: str, prompts: tuple[Prompt, ...] = PROMPTS, **other: Any) -> Finished:
    return Finished(pair, settings_of(method, **other), prompts)


def solo(
    pair: Pair, prompts: tuple[Prompt, ...] = PROMPTS, budget: int = BUDGET
) -> list[tuple[int, ...]]:
    """The oracle's outputs."""
    answers = Oracle(pair).answers(prompts, Settings(max_new_tokens=budget))
    return [answer.output_ids for answer in answers]


def solo_without_end(
    pair: Pair, prompts: tuple[Prompt, ...] = PROMPTS, budget: int = BUDGET
) -> list[tuple[int, ...]]:
    """What the target would write if no token ended a row."""
    endless = Tokenizer(None, name="endless", eos_ids=(), vocabulary=pair.tokenizer.vocabulary)
    return solo(replace(pair, tokenizer=endless), prompts, budget)


def assert_equal_solo(
    pair: Pair, method: str, prompts: tuple[Prompt, ...] = PROMPTS, **other: Any
) -> Finished:
    """Run a method: every row equals its solo run, and no invariant breaks."""
    done = run(pair, method, prompts, **other)
    assert done.outputs == solo(pair, prompts, other.get("max_new_tokens", BUDGET))
    assert done.violations == []
    return done


def heard(
    pair: Pair, settings: Settings, prompts: tuple[Prompt, ...] = PROMPTS
) -> tuple[dict[tuple[int, int], torch.Tensor], list[RoundRecord]]:
    """The logits at each row's last committed token, by (row, committed tokens); the rounds."""
    job = Run(pair, settings, prompts)
    accept = job.loop.accept
    original = accept.judge
    found: dict[tuple[int, int], torch.Tensor] = {}

    def judge(logits: Any, draft_token_ids: Any, rows: Any, sampler: Any) -> Any:
        for place, row in enumerate(rows):
            found[row.index, row.length] = logits.whole[place, 0].clone()
        return original(logits, draft_token_ids, rows, sampler)

    accept.judge = judge  # type: ignore[method-assign]
    return found, [record for record in job.records() if isinstance(record, RoundRecord)]
