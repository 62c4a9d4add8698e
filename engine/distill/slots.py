"""A slot cache for writing many answers at once: each row owns a slot and grows at its own pace.

A finished row's slot is given to the next prompt without touching its neighbours; what a
slot held before is hidden by the mask (``kv <= position``) and overwritten as the row grows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotPlan:
    """Where the next forward writes: shared by the layers of one cache."""

    rows: Tensor | None = (
        None  # None: all slots, one token each; else a fresh prefill of these slots
    )
    positions: Tensor
    longest: int = 0


class SlotLayer(CacheLayerMixin):
    """One layer's keys and values, ``[slots, heads, length, dim]``."""

    def __init__(self, plan: SlotPlan, slots: int, length: int) -> None:
        super().__init__()
        self.plan, self.slots, self.length = plan, slots, length

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        def buffer(like: Tensor) -> Tensor:
            return like.new_zeros(self.slots, like.shape[1], self.length, like.shape[3])

        self.keys, self.values = buffer(key_states), buffer(value_states)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        plan = self.plan
        if plan.rows is not None:
            width = key_states.shape[2]
            self.keys[plan.rows, :, :width] = key_states
            self.values[plan.rows, :, :width] = value_states
            return key_states, value_states
        row = torch.arange(self.slots, device=key_states.device)
        self.keys[row, :, plan.positions] = key_states[:, :, 0]
        self.values[row, :, plan.positions] = value_states[:, :, 0]
        return self.keys[:, :, : plan.longest], self.values[:, :, : plan.longest]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return (query_length, 0) if self.plan.rows is not None else (self.plan.longest, 0)

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.length

    get_max_cache_shape = get_max_length


class SlotCache:
    """The cache of a batch of independent rows, and the two forwards that use it."""

    def __init__(self, model: Any, slots: int, length: int) -> None:
        self.model, self.plan = model, SlotPlan()
        count = model.config.num_hidden_layers
        self.cache = Cache(layers=[SlotLayer(self.plan, slots, length) for _ in range(count)])
        self.device = next(model.parameters()).device
        self.keyword = cache_keyword(model)

    def prefill(self, rows: list[int], prompts: list[list[int]]) -> None:
        """Write ``prompt[:-1]`` of each prompt into its slot, from column 0 on."""
        width = max(len(prompt) - 1 for prompt in prompts)
        if width == 0:
            return
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        for i, prompt in enumerate(prompts):
            ids[i, : len(prompt) - 1] = torch.tensor(prompt[:-1], dtype=torch.long)
        self.plan.rows = torch.tensor(rows, device=self.device)
        positions = torch.arange(width, device=self.device)[None].expand(len(rows), -1)
        self.model.model(
            input_ids=ids.to(self.device),
            position_ids=positions,
            use_cache=True,
            **{self.keyword: self.cache},
        )

    def step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Feed one token per slot at its own position; the logits of each slot."""
        self.plan.rows = None
        self.plan.positions = positions
        self.plan.longest = int(positions.max()) + 1
        columns = torch.arange(self.plan.longest, device=self.device)
        mask = (columns[None] <= positions[:, None])[:, None, None]
        logits: Tensor = self.model(
            input_ids=tokens[:, None],
            position_ids=positions[:, None],
            attention_mask=mask,
            use_cache=True,
            **{self.keyword: self.cache},
        ).logits[:, 0]
        return logits


def cache_keyword(model: Any) -> str:
    """The name under which this transformers version takes the cache."""
    import inspect

    names = inspect.signature(inspect.unwrap(type(model.model).forward)).parameters
    return "cache" if "cache" in names else "past_key_values"
