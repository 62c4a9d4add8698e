"""Whatever drafts, and however K is chosen: what is written stays the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.config.settings import Sampling
from engine.rounds.draft_model import ModelDraft
from engine.rounds.sequence import Sequence
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
def test_k_chosen_by_the_clock(method: str, draft: str) -> None:
    pair = tiny_pair(eos_ids=())
    if draft == "lookup":
        pair = replace(pair, draft=None)
    done = run(pair, method, REPETITIVE, draft_tokens="auto", max_new_tokens=24)
    assert done.outputs == solo(pair, REPETITIVE, 24)
    assert done.violations == []
    assert len({record.draft_tokens for record in done.rounds}) > 1
    assert all(record.draft_choice for record in done.rounds)


@every_speculative_method
def test_sampling_with_lookup_repeats_by_seed(method: str) -> None:
    pair = replace(tiny_pair(eos_ids=()), draft=None)
    warm = Sampling(temperature=0.7, seed=3)
    first = run(pair, method, REPETITIVE, sampling=warm)
    assert first.outputs == run(pair, method, REPETITIVE, sampling=warm).outputs
    assert first.violations == []


@dataclass
class Side:
    """As much of a side as drafting depends on."""

    model: Any
    valid: dict[int, int]
    fixed: int | None = None


class Layout:
    """Rows of three tokens, whose draft is as sure of its next tokens as is given.

    Args:
        sure: for each draft token, the probability of the likeliest token, row by row.
    """

    def __init__(self, sure: list[list[float]]) -> None:
        self.rows: Any = [
            Sequence(prompt, budget=9, context=64, eos_ids=frozenset())
            for prompt in prompts_of([(5, 6, 7)] * len(sure[0]))
        ]
        model = SimpleNamespace(device=torch.device("cpu"), carries_state=False)
        self.draft = Side(model, {row.index: 0 for row in self.rows})
        self._sure = iter(sure)

    def committed(self, count: int, device: torch.device) -> torch.Tensor:
        return torch.zeros((len(self.rows), count), dtype=torch.int64)

    def feed(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        p = torch.tensor(next(self._sure))
        return torch.stack([p.log(), (1 - p).log()], dim=1)[:, None]


class Greedy:
    """Draws the first column; `given` tokens of row 0 are put into the draft's mouth."""

    def __init__(self, given: int = 0) -> None:
        self.given = given

    def forced(self, row: Sequence) -> int:
        return self.given if row.index == 0 else 0

    def draft(self, model: Any, logits: torch.Tensor, rows: Any, step: int) -> Any:
        return torch.zeros(len(rows), dtype=torch.int64), None


def counts(sure: list[list[float]], most: list[int], threshold: float, given: int = 0) -> list[int]:
    layout: Any = Layout(sure)
    sampler: Any = Greedy(given)
    return ModelDraft(64, threshold).draft_up_to(layout, most, sampler).counts


def test_a_row_stops_by_the_chance_that_all_its_draft_tokens_are_accepted() -> None:
    sure = [[0.95, 0.6, 0.95], [0.95, 0.6, 0.95], [0.51, 0.99, 0.99], [0.9, 0.9, 0.9]]
    # row 1: 0.6 · 0.6 is too little; row 2 may draft no more
    assert counts(sure, [4, 4, 1], 0.5) == [3, 2, 1]
    assert counts(sure, [4, 4, 1], 0.0) == [4, 4, 1]


def test_the_draft_is_not_run_for_rows_that_have_all_stopped() -> None:
    assert counts([[0.9, 0.9], [0.5, 0.5]], [4, 4], 0.5) == [2, 2]


def test_the_first_token_costs_no_more_forward_and_is_always_drafted() -> None:
    assert counts([[0.6, 0.55]], [4, 4], 0.7) == [1, 1]


def test_what_is_given_by_hand_is_drafted_whatever_its_chance() -> None:
    assert counts([[0.5, 0.5], [0.5, 0.5]], [4, 4], 0.9, given=2) == [2, 1]
