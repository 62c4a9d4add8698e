"""The target writes: many prompts at once, a finished row's slot refilled at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.distill.slots import SlotCache


@dataclass(frozen=True)
class Request:
    """One prompt to continue. Temperature 0 is greedy."""

    prompt: list[int]
    max_new: int
    temperature: float = 0.0


def choose(logits: Tensor, temperature: Tensor, generator: torch.Generator) -> Tensor:
    """Each row's next token: its argmax, or a sample (Gumbel trick) where it has a temperature."""
    warm = temperature > 0
    if not bool(warm.any()):
        return logits.argmax(-1)
    noise = torch.rand(logits.shape, generator=generator, dtype=torch.float32).clamp_(1e-20)
    noise = -(-noise.log()).log()
    return (logits.float() + noise.to(logits.device) * temperature[:, None]).argmax(-1)


@torch.inference_mode()
def generate(
    model: Any,
    requests: Sequence[Request],
    eos: set[int],
    *,
    slots: int = 64,
    seed: int = 0,
    stop: Callable[[], bool] | None = None,
) -> Iterator[tuple[int, list[int]]]:
    """Yield ``(index, new tokens)`` as rows finish, eos included.

    Rows are taken in the order of the requests; memory is one cache of ``slots`` rows as long
    as the longest request.
    """
    if not requests:
        return
    slots = min(slots, len(requests))
    length = max(len(r.prompt) + r.max_new for r in requests)
    cache = SlotCache(model, slots, length)
    device = cache.device
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.zeros(slots, dtype=torch.long, device=device)
    positions = torch.zeros(slots, dtype=torch.long, device=device)
    temperature = torch.zeros(slots, device=device)
    owner: list[int | None] = [None] * slots
    written: list[list[int]] = [[] for _ in range(slots)]
    waiting = iter(range(len(requests)))
    exhausted = False
    batch = max(1, slots // 8)  # refill several slots in one prefill: fewer, wider forwards

    while True:
        free = [s for s in range(slots) if owner[s] is None]
        if not exhausted and len(free) >= batch:
            taken = [(s, i) for s, i in zip(free, waiting, strict=False)]
            exhausted = len(taken) < len(free)
            if taken:
                cache.prefill([s for s, _ in taken], [requests[i].prompt for _, i in taken])
            for s, i in taken:
                owner[s], written[s] = i, []
                tokens[s] = requests[i].prompt[-1]
                positions[s] = len(requests[i].prompt) - 1
                temperature[s] = requests[i].temperature
        if all(o is None for o in owner) or (stop is not None and stop()):
            return
        chosen = choose(cache.step(tokens, positions), temperature, generator)
        tokens = chosen
        positions = positions + 1
        for s, token in enumerate(chosen.tolist()):
            index = owner[s]
            if index is None:
                continue
            written[s].append(token)
            if token in eos or len(written[s]) >= requests[index].max_new:
                yield index, written[s]
                owner[s] = None
        idle = torch.tensor([o is None for o in owner], device=device)
        positions = torch.where(idle, 0, positions)
