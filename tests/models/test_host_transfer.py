"""A round brings a fixed number of tensors from the device to the host, however many rows
there are: every such copy stops the program until the device has caught up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.config.settings import Sampling, Settings
from engine.models.causal_lm import LanguageModel
from engine.models.forward_input import Feed
from engine.models.host_transfer import Crossing
from engine.records.schema import RoundRecord
from engine.runs.run import Run
from tests.tiny import mixed_prompts, tiny_pair

TO_HOST = {
    Tensor.cpu,
    Tensor.numpy,
    Tensor.tolist,
    Tensor.item,
    Tensor.__bool__,
    Tensor.__int__,
    Tensor.__float__,
    Tensor.__index__,
    Tensor.__array__,
    Tensor.nonzero,
    torch.nonzero,
}
"""What stops a program on CUDA: copies to the host, and sizes that depend on values."""


class OnDevice(Tensor):
    """A tensor that stands for one on CUDA: what is computed from it lies there as well."""

    copies = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        if func not in TO_HOST:
            return result
        OnDevice.copies += 1
        return result.as_subclass(Tensor) if isinstance(result, Tensor) else result


@contextmanager
def on_device(*models: LanguageModel) -> Iterator[None]:
    """Within the block, the models' logits lie on the device."""

    def placed(model: LanguageModel) -> Any:
        forward = model.forward

        def run(feed: Feed, store: Any, *, keep: int = 0) -> Tensor:
            return forward(feed, store, keep=keep).as_subclass(OnDevice)

        return run

    for model in models:
        model.forward = placed(model)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for model in models:
            del model.forward


def copies_a_round(method: str, batch_size: int, draft_tokens: int, temperature: float) -> set[int]:
    """How many copies the rounds of a run made; those that admit rows, or in which nothing
    is drafted any more, are left out."""
    pair = tiny_pair()
    assert pair.draft is not None
    settings = Settings(
        method=method,
        batch_size=batch_size,
        draft_tokens=draft_tokens,
        max_new_tokens=16,
        sampling=Sampling(temperature=temperature),
    )
    made = set()
    with on_device(pair.target, pair.draft):
        OnDevice.copies = 0
        for record in Run(pair, settings, mixed_prompts(8)).records():
            speculated = isinstance(record, RoundRecord) and any(
                r.draft_token_ids for r in record.rows
            )
            if speculated and not record.admitted:
                made.add(OnDevice.copies)
            OnDevice.copies = 0
    return made


@pytest.mark.parametrize("method", ["eqspec", "exspec", "slotspec", "rollback"])
@pytest.mark.parametrize(("batch_size", "draft_tokens"), [(1, 2), (8, 2), (8, 6)])
def test_two_copies_a_round(method: str, batch_size: int, draft_tokens: int) -> None:
    """One with what is verified, one with what was fed, for the ledger."""
    assert copies_a_round(method, batch_size, draft_tokens, 0.0) == {2}


@pytest.mark.parametrize("method", ["eqspec", "slotspec"])
@pytest.mark.parametrize(("batch_size", "draft_tokens"), [(1, 2), (8, 2), (8, 6)])
def test_sampling_needs_no_more(method: str, batch_size: int, draft_tokens: int) -> None:
    assert copies_a_round(method, batch_size, draft_tokens, 0.8) == {2}


def test_tensors_cross_together_in_their_shapes() -> None:
    tensors = [torch.arange(6).view(2, 3), torch.zeros((2, 0), dtype=torch.int64), torch.tensor(7)]
    crossing = Crossing(tensors)
    tensors[0].zero_()  # a copy was made when it began
    first, empty, last = crossing.arrived()
    assert np.array_equal(first, [[0, 1, 2], [3, 4, 5]])
    assert empty.shape == (2, 0)
    assert last.shape == ()
    assert last == 7
