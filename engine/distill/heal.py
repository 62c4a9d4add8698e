"""Bridging the gap where layers were taken out, in closed form, before any training.

The layer before a gap is asked to write what the missing layers would have written, and each
layer behind it to correct what is still wrong: the last linear map of each is moved, by ridge
regression from its own features, towards the target's state at the same place. A minute of it
is worth many minutes of gradient steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engine.distill.labels import by_length, hidden_states, pad_rows
from engine.distill.tokens import TokenData


@dataclass
class Group:
    """Some padded rows on their way through the draft, layer by layer."""

    ids: Tensor
    real: Tensor
    state: Tensor  # the draft's state at the input of the layer in turn
    given: dict[str, Any]  # what the layers are called with besides the state
    goals: list[Tensor]  # the target's state behind each layer of the draft, real tokens only


def gaps(layers: Sequence[int]) -> list[int]:
    """Places in the draft after which layers of the target are missing."""
    return [i for i in range(len(layers) - 1) if layers[i + 1] != layers[i] + 1]


def last_linear(layer: nn.Module) -> nn.Linear | None:
    """The linear map that writes the layer's MLP output, where the layer has the usual parts."""
    down = getattr(getattr(layer, "mlp", None), "down_proj", None)
    return down if isinstance(down, nn.Linear) else None


def inputs_of(
    model: Any, places: Sequence[int], ids: Tensor
) -> list[tuple[Tensor, dict[str, Any]]]:
    """State and keywords with which the layers at ``places`` are called on ``ids``."""
    found: dict[int, tuple[Tensor, dict[str, Any]]] = {}
    handles = []
    for place in places:

        def look(module: Any, args: Any, kwargs: dict[str, Any], place: int = place) -> None:
            given = dict(kwargs)
            state = args[0] if args else given.pop("hidden_states")
            found[place] = (state, given)

        layer = model.model.layers[place]
        handles.append(layer.register_forward_pre_hook(look, with_kwargs=True))
    try:
        hidden_states(model, ids)
    finally:
        for handle in handles:
            handle.remove()
    return [found[place] for place in places]


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


@torch.inference_mode()
def bridge(
    target: Any,
    draft: Any,
    layers: Sequence[int],
    data: TokenData,
    *,
    tokens: int = 32_000,
    limit: int = 384,
    ridge: float = 1e-2,
) -> list[float]:
    """Heal ``draft`` on about ``tokens`` tokens, from its first gap on.

    Returns the share of the error at each healed layer's output that went away. Memory: a state
    of each token and healed layer, and two matrices of the MLP's width squared, in float32.
    """
    broken = gaps(layers)
    places = list(range(broken[0], len(layers) - 1)) if broken else []
    if any(last_linear(draft.model.layers[place]) is None for place in places) or not places:
        return []
    groups = []
    for chosen in by_length(data, sample(data, tokens, limit), 4096, limit):
        ids, real = pad_rows(data, chosen, limit)
        mask = real.to(draft.model.embed_tokens.weight.device)
        behind = [layers[place + 1] for place in places]
        goals = [state[mask].float() for state, _ in inputs_of(target, behind, ids)]
        state, given = inputs_of(draft, places[:1], ids)[0]
        groups.append(Group(ids, mask, state, given, goals))
    return [
        _heal(draft.model.layers[place], turn, groups, ridge) for turn, place in enumerate(places)
    ]


def _heal(layer: nn.Module, turn: int, groups: list[Group], ridge: float) -> float:
    """Move the layer's last linear map, and take the groups through it."""
    down = last_linear(layer)
    assert down is not None
    width, hidden = down.in_features, down.out_features
    device = down.weight.device
    gram = torch.zeros(width, width, device=device)
    cross = torch.zeros(width, hidden, device=device)
    error = 0.0
    features: list[Tensor] = []
    handle = down.register_forward_hook(lambda module, args, output: features.append(args[0]))
    try:
        for group in groups:
            output = layer(group.state, **group.given)
            group.state = output[0] if isinstance(output, tuple) else output
            x = features[-1][group.real].float()
            y = group.goals[turn] - group.state[group.real].float()
            # a first token's state is often huge: only directions are to count, not sizes
            size = group.goals[turn].square().mean(1, keepdim=True).sqrt().clamp(min=1e-6)
            x, y = x / size, y / size
            gram += x.T @ x
            cross += x.T @ y
            error += float(y.square().sum())
    finally:
        handle.remove()
    gram.diagonal().add_(ridge * gram.diagonal().mean())
    move = torch.linalg.solve(gram, cross)
    down.weight += move.T.to(down.weight.dtype)
    for group, seen in zip(groups, features, strict=True):
        group.state = group.state + (seen.float() @ move).to(group.state.dtype)
    return float((cross * move).sum()) / max(error, 1e-12)
