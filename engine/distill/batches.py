"""The order in which sequences are seen: a pure function of (seed, epoch), so a resume is exact."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.distill.labels import Labels, pad_rows


@dataclass(frozen=True)
class Source:
    """One labelled data set: the sequences to train on and how often each is seen in an epoch."""

    labels: Labels
    indices: list[int]
    weight: float = 1.0


@dataclass(frozen=True)
class Batch:
    ids: Tensor  # [rows, width]
    real: Tensor  # [rows, width], False on padding
    states: Tensor  # [rows, width, hidden]
    weight: Tensor  # [rows, width]: 1 where the next token belongs to the answer


def plan_epoch(
    sources: Sequence[Source], budget: int, seed: int, epoch: int
) -> list[list[tuple[int, int]]]:
    """Batches of ``(source, sequence)``, alike in length within a batch, in random order."""
    rng = random.Random(seed * 1_000_003 + epoch)
    lengths: list[list[int]] = []
    drawn: list[tuple[int, int]] = []
    for s, source in enumerate(sources):
        lengths.append(source.labels.data.lengths().clamp(max=source.labels.limit).tolist())
        for i in source.indices:
            times = int(source.weight) + (rng.random() < source.weight % 1)
            drawn += [(s, i)] * times
    # a little noise keeps the same sequences from always meeting in one batch
    drawn.sort(key=lambda pair: lengths[pair[0]][pair[1]] * rng.uniform(0.9, 1.1))
    batches: list[list[tuple[int, int]]] = []
    group: list[tuple[int, int]] = []
    width = 0
    for pair in drawn:
        longer = max(width, lengths[pair[0]][pair[1]])
        if group and longer * (len(group) + 1) > budget:
            batches.append(group)
            group, longer = [], lengths[pair[0]][pair[1]]
        group.append(pair)
        width = longer
    if group:
        batches.append(group)
    rng.shuffle(batches)
    return batches


def load_batch(
    sources: Sequence[Source], pairs: list[tuple[int, int]], prompt_weight: float, eos: set[int]
) -> Batch:
    """Tokens, the target's states and the weight of each token's prediction."""
    parts = []
    for s in sorted({s for s, _ in pairs}):
        labels = sources[s].labels
        rows = [i for t, i in pairs if t == s]
        ids, real = pad_rows(labels.data, rows, labels.limit)
        parts.append((ids, real, labels.rows(rows, ids.shape[1]), labels.data.answer_start[rows]))
    width = max(ids.shape[1] for ids, *_ in parts)
    if len(parts) == 1:
        ids, real, states, starts = parts[0]
    else:

        def widen(x: Tensor) -> Tensor:
            return torch.cat([x, x.new_zeros(x.shape[0], width - x.shape[1], *x.shape[2:])], 1)

        ids, real, states = (torch.cat([widen(part[k]) for part in parts]) for k in range(3))
        starts = torch.cat([part[3] for part in parts])
    column = torch.arange(width)[None]
    answer = (column >= starts[:, None] - 1) & (starts[:, None] >= 0)
    weight = torch.where(answer, 1.0, prompt_weight)
    ended = torch.zeros_like(real)
    for token in eos:
        ended |= answer & (ids == token)
    # the first token has seen nothing, and what would follow an end is never asked for
    weight = weight * real * ~ended * (column > 0)
    return Batch(ids, real, states, weight)
