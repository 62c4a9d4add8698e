"""The draft on another device than the target: nothing of the two is ever mixed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.config.settings import Sampling, Settings
from engine.models.causal_lm import LanguageModel
from engine.records.schema import RoundRecord, Summary
from engine.runs.run import Run
from tests.elsewhere import ELSEWHERE, SecondDevice, There
from tests.tiny import mixed_prompts, tiny_pair

PAIR = tiny_pair()
PROMPTS = mixed_prompts(3)
WARM = Sampling(temperature=0.9, top_p=0.95)


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any, scale: float
) -> torch.Tensor:
    """As torch's own, which would look for a kernel of the second device."""
    scores = (query @ key.transpose(-1, -2)) * scale
    return (scores + attn_mask).softmax(dim=-1) @ value


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("engine.models.attention.scaled_dot_product_attention", attention)
    with SecondDevice():
        yield


def moved(model: LanguageModel) -> LanguageModel:
    """The model on the second device."""
    hf = copy.deepcopy(model.hf).requires_grad_(False).to(ELSEWHERE)
    found = LanguageModel(hf, eos_ids=model.eos_ids, name=model.name)
    assert found.device == ELSEWHERE
    return found


def facts(records: list[Any]) -> list[Any]:
    """What was drafted, accepted and kept in each round."""
    return [
        [(row.row, row.draft_token_ids, row.accepted, row.committed, row.bonus) for row in r.rows]
        for r in records
        if isinstance(r, RoundRecord)
    ]


def run(pair: Any, method: str, sampling: Sampling) -> list[Any]:
    settings = Settings(
        method=method, batch_size=3, draft_tokens=3, max_new_tokens=8, sampling=sampling
    )
    return list(Run(pair, settings, PROMPTS).records())


@pytest.mark.parametrize(
    ("method", "sampling"),
    [
        ("eqspec", Sampling()),
        ("exspec", Sampling()),
        ("slotspec", Sampling()),
        ("rollback", Sampling()),
        ("slotspec", WARM),
    ],
)
def test_a_draft_elsewhere_says_the_same(method: str, sampling: Sampling, second: None) -> None:
    assert PAIR.draft is not None
    never = torch.tensor([7, 8, 9])
    here = replace(PAIR, never=never)
    apart = replace(PAIR, draft=moved(PAIR.draft), never=never.to(ELSEWHERE))
    expected, found = (run(pair, method, sampling) for pair in (here, apart))
    assert facts(found) == facts(expected)
    assert isinstance(found[-1], Summary)
    assert found[-1].totals.accepted_per_row_round > 0 or method == "rollback"


def test_a_target_elsewhere_says_the_same(second: None) -> None:
    apart = replace(PAIR, target=moved(PAIR.target))
    expected, found = (run(pair, "exspec", WARM) for pair in (PAIR, apart))
    assert facts(found) == facts(expected)


@pytest.mark.parametrize("method", ["eqspec", "slotspec"])
def test_a_target_on_two_devices_says_the_same(method: str, second: None) -> None:
    """As accelerate spreads a large one: its last layers elsewhere, and what goes between
    two layers is carried over."""
    hf = copy.deepcopy(PAIR.target.hf).requires_grad_(False)
    last = hf.model.layers[-1].to(ELSEWHERE)

    def over(module: Any, args: Any, named: Any) -> Any:
        return carried(args, ELSEWHERE), carried(named, ELSEWHERE)

    def back(module: Any, args: Any, output: Any) -> Any:
        return carried(output, torch.device("cpu"))

    last.register_forward_pre_hook(over, with_kwargs=True)
    last.register_forward_hook(back)
    spread = replace(PAIR, target=LanguageModel(hf, eos_ids=PAIR.target.eos_ids, name="spread"))
    expected, found = (run(pair, method, Sampling()) for pair in (PAIR, spread))
    assert facts(found) == facts(expected)


def carried(value: Any, device: torch.device) -> Any:
    """With every tensor on this device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(carried(part, device) for part in value)
    if isinstance(value, dict):
        return {name: carried(part, device) for name, part in value.items()}
    return value


def test_the_second_device_refuses_what_real_ones_refuse(second: None) -> None:
    here, there = torch.ones(2), torch.ones(2).to(ELSEWHERE)
    assert isinstance(there, There)
    assert (there + there).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="same device"):
        here + there
    with pytest.raises(RuntimeError, match="same device"):
        there[torch.tensor([0])]
