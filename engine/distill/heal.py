"""Bridging the gap where layers were taken out, in closed form, before any training.

The layer before a gap is asked to write what the missing layers would have written: its last
linear map is replaced by the ridge regression from its own features onto the target's state
behind the gap. A few seconds of it are worth many minutes of gradient steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.distill.labels import by_length, hidden_states, pad_rows
from engine.distill.tokens import TokenData


def gaps(layers: Sequence[int]) -> list[int]:
    """Places in the draft after which layers of the target are missing."""
    return [i for i in range(len(layers) - 1) if layers[i + 1] != layers[i] + 1]


def last_linear(layer: nn.Module) -> nn.Linear | None:
    """The linear map that writes the layer's MLP output, where the layer has the usual parts."""
    down = getattr(getattr(layer, "mlp", None), "down_proj", None)
    return down if isinstance(down, nn.Linear) else None


class _Tap:
    """Collects the input (and output) of a module during a forward."""

    def __init__(self, module: nn.Module) -> None:
        self.seen: Tensor | None = None
        self.wrote: Tensor | None = None
        self.handle = module.register_forward_hook(self._look, with_kwargs=True)

    def _look(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        self.seen = args[0] if args else kwargs["hidden_states"]
        self.wrote = output[0] if isinstance(output, tuple) else output


@torch.inference_mode()
def bridge(
    target: Any,
    draft: Any,
    layers: Sequence[int],
    data: TokenData,
    *,
    tokens: int = 24_000,
    limit: int = 384,
    ridge: float = 1e-3,
) -> list[float]:
    """Heal each gap of ``draft`` on about ``tokens`` tokens; the share of the variance explained.

    Memory: two matrices of the MLP's width squared, in float32.
    """
    chosen = sample(data, tokens, limit)
    explained = []
    for place in gaps(layers):
        layer = draft.model.layers[place]
        down = last_linear(layer)
        if down is None:
            continue
        explained.append(
            _regress(target, draft, layers[place + 1], layer, down, data, chosen, limit, ridge)
        )
    return explained


def sample(data: TokenData, tokens: int, limit: int) -> list[int]:
    """Sequences spread over the data, until there are enough tokens."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
    lengths = data.lengths().clamp(max=limit).tolist()
    chosen: list[int] = []
    total = 0
    for i in order:
        if total >= tokens:
            break
        chosen.append(i)
        total += lengths[i]
    return chosen


def _regress(
    target: Any,
    draft: Any,
    behind: int,
    layer: nn.Module,
    down: nn.Linear,
    data: TokenData,
    chosen: list[int],
    limit: int,
    ridge: float,
) -> float:
    """Fit ``down`` so that the layer's output is the target's state at the input of ``behind``."""
    width, hidden = down.in_features, down.out_features
    gram = torch.zeros(width, width)
    cross = torch.zeros(width, hidden)
    square = left = 0.0
    features, whole = _Tap(down), _Tap(layer)
    goal = _Tap(target.model.layers[behind])
    try:
        for group in by_length(data, chosen, 4096, limit):
            ids, real = pad_rows(data, group, limit)
            hidden_states(draft, ids)
            hidden_states(target, ids)
            assert features.seen is not None
            assert features.wrote is not None
            assert whole.wrote is not None
            assert goal.seen is not None
            mask = real.to(features.seen.device)
            x = features.seen[mask].float().cpu()
            stream = whole.wrote[mask].float() - features.wrote[mask].float()
            y = goal.seen[mask].float().cpu() - stream.cpu()
            # a first token's state is often huge: let no token count for more than its direction
            size = y.square().mean(1, keepdim=True).sqrt().clamp(min=1e-6)
            x, y = x / size, y / size
            gram += x.T @ x
            cross += x.T @ y
            square += float(y.square().sum())
        gram.diagonal().add_(ridge * gram.diagonal().mean())
        weight = torch.linalg.solve(gram, cross)
        left = float((cross * weight).sum())
        down.weight.copy_(weight.T)
    finally:
        for tap in (features, whole, goal):
            tap.handle.remove()
    return left / max(square, 1e-12)
