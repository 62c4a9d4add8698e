"""The target's answers to many prompts, in the engine's own layout of slots."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.methods.slotspec import Slots
from engine.models.causal_lm import LanguageModel
from engine.records.schema import Prompt
from engine.rounds.layout import Plan
from engine.rounds.packed_logits import Logits
from engine.rounds.sequence import Sequence


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
    requests: Seq[Request],
    eos: set[int],
    *,
    slots: int = 64,
    seed: int = 0,
    stop: Callable[[], bool] | None = None,
) -> Iterator[tuple[int, list[int]]]:
    """Yield ``(index, new tokens)`` as rows end, eos included.

    Rows begin in the order of the requests. The memory is one cache of ``slots`` rows, each
    as long as the longest request.

    Args:
        model: a causal LM of transformers. It is left as it is: the engine runs a copy
            that shares its weights.
        stop: asked before every forward; True ends the generation.
    """
    waiting = deque(sequence(at, request, eos) for at, request in enumerate(requests))
    if not waiting:
        return
    slots = min(slots, len(waiting))
    columns = max(row.limit for row in waiting)
    shared = {id(weight): weight for weight in model.parameters()}
    target = LanguageModel(deepcopy(model, shared))
    layout = Slots(target, None, Plan(slots, slots, draft_tokens=0, columns=columns))
    generator = torch.Generator().manual_seed(seed)
    refill = max(1, slots // 8)  # several rows in one prefill: fewer forwards, wider ones
    while True:
        free = slots - len(layout.rows)
        if waiting and free >= refill:
            layout.admit([waiting.popleft() for _ in range(min(free, len(waiting)))])
        rows = list(layout.rows)
        if not rows or (stop is not None and stop()):
            return
        counts = [1] * len(rows)
        block = layout.committed(1, target.device)
        logits = Logits(layout.verify(block, counts), counts).whole[:, 0]
        temperature = torch.tensor([requests[row.index].temperature for row in rows])
        chosen = choose(logits, temperature.to(logits.device), generator)
        for row, token in zip(rows, chosen.tolist(), strict=True):
            row.commit([token])
            layout.target.valid[row.index] += 1
        layout.synchronise()
        layout.compact()
        for row in rows:
            if not row.running:
                yield row.index, row.output


def sequence(index: int, request: Request, eos: set[int]) -> Sequence:
    """The row of a request."""
    length = len(request.prompt) + request.max_new
    prompt = Prompt(index=index, ids=tuple(request.prompt), text="")
    return Sequence(prompt, budget=request.max_new, context=length, eos_ids=frozenset(eos))
