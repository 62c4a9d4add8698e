"""The target's logits of a round, of which only those of real tokens need be there."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from engine.models.host_transfer import to_device


class Logits:
    """Logits of [last committed, d1 … dK] of every row.

    Rows draft different numbers of tokens. Filling their block up to a rectangle of whole
    vocabularies, and looking for the best of each, can cost as much as an attention layer.

    Args:
        tensor: [rows, K + 1, vocabulary], or [real tokens, vocabulary], row after row.
        counts: K_i + 1 of each row.
    """

    def __init__(self, tensor: Tensor, counts: list[int]) -> None:
        self._tensor = tensor
        self._counts = counts
        self.device = tensor.device

    @cached_property
    def whole(self) -> Tensor:
        """[rows, K + 1, vocabulary]; beyond a row's count they mean nothing."""
        return self._spread(self._tensor)

    def best(self) -> tuple[Tensor, Tensor]:
        """The largest logit of each token and its column, [rows, K + 1]."""
        best = self._tensor.max(dim=-1)
        return self._spread(best.values), self._spread(best.indices)

    def _spread(self, values: Tensor) -> Tensor:
        """[real tokens, …] → [rows, K + 1, …]; the cells beyond a row's count get its last."""
        if self._tensor.dim() == 3:
            return values
        counts = np.array(self._counts)
        first = counts.cumsum() - counts
        cells = first[:, None] + np.minimum(np.arange(counts.max()), counts[:, None] - 1)
        flat = to_device(torch.from_numpy(cells.reshape(-1)), values.device)
        return values.index_select(0, flat).reshape(*cells.shape, *values.shape[1:])
