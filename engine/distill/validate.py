"""How good a draft is: agreement with the target's greedy answers, overlap, tokens per round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engine.distill.labels import Labels, by_length, hidden_states, pad_rows
from engine.distill.unroll import unroll
from engine.models.eagle_format import EagleDraft

AHEAD = 5
"""Steps of an EAGLE-style draft that are counted apart."""


@dataclass(frozen=True)
class Figures:
    """Means over the answer tokens of one validation set."""

    tokens: int
    agreement: float  # the draft's top-1 is the target's
    overlap: float  # sum over min(p, q): the acceptance rate of lossless sampling
    tokens_per_round: dict[int, float] = field(default_factory=dict)  # K -> committed per row-round

    def accepted(self, draft_tokens: int) -> float:
        return self.tokens_per_round[draft_tokens] - 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "agreement": round(self.agreement, 4),
            "overlap": round(self.overlap, 4),
            "tokens_per_round": {str(k): round(v, 3) for k, v in self.tokens_per_round.items()},
        }


def rounds(steps: Sequence[Sequence[bool]], draft_tokens: int) -> tuple[int, int]:
    """Accepted tokens and rounds of greedy speculation over an answer.

    ``steps[j][t]`` says whether the draft, given the answer before t, drafts the target's token t
    as the draft token j of a round; the last of ``steps`` stands for all further ones, and an
    ordinary
    draft, to which the place in a round makes no difference, has one only. A round accepts the hits
    up to the first miss and commits the target's token after them.
    """
    place = accepted = count = 0
    while place < len(steps[0]):
        count += 1
        room = min(draft_tokens, len(steps[0]) - place - 1)
        run = 0
        while run < room and steps[min(run, len(steps) - 1)][place + run]:
            run += 1
        accepted += run
        place += run + 1
    return accepted, count


@torch.inference_mode()
def validate(
    draft: Any,
    labels: Labels,
    head: Tensor,
    hot_ids: Tensor,
    indices: Sequence[int] | None = None,
    ks: Sequence[int] = (3, 4, 5, 6, 7, 8),
) -> Figures:
    """Teacher-forced figures on the answers of ``labels``; ``head`` is the target's full head.

    Greedy speculation conditions the draft on nothing but the answer itself, so the hits of one
    teacher-forced pass give its rounds exactly; for an EAGLE-style draft, of one pass a step.
    """
    data = labels.data
    chosen = [
        i for i in (range(len(data)) if indices is None else indices) if data.answer_start[i] != 0
    ]
    hits_of: list[list[list[bool]]] = []
    overlap = 0.0
    hot = hot_ids.to(head.device)
    for group in by_length(data, chosen, 4096, labels.limit):
        ids, real = pad_rows(data, group, labels.limit)
        truth = labels.rows(group, ids.shape[1]).to(head.device)
        if isinstance(draft, EagleDraft):
            states = list(unroll(draft, ids.to(head.device), truth.to(head.dtype), AHEAD))
        else:
            states = [hidden_states(draft, ids)]
        for row, i in enumerate(group):
            start, end = max(1, int(data.answer_start[i])), int(real[row].sum())
            if end <= start:
                continue
            final = truth[row, start - 1 : end - 1, : head.shape[1]]
            wanted = (final.to(head.dtype) @ head.T).float()
            said = [draft.lm_head(own[row, start - 1 : end - 1]).float() for own in states]
            hits_of.append([(hot[own.argmax(-1)] == wanted.argmax(-1)).tolist() for own in said])
            p = wanted.softmax(-1)[:, hot]
            overlap += float(torch.minimum(p, said[0].softmax(-1)).sum())
    total = sum(len(steps[0]) for steps in hits_of)
    if total == 0:
        return Figures(0, 0.0, 0.0, dict.fromkeys(ks, 1.0))
    per_round = {}
    for k in ks:
        pairs = [rounds(steps, k) for steps in hits_of]
        per_round[k] = 1 + sum(a for a, _ in pairs) / sum(n for _, n in pairs)
    hits = sum(sum(steps[0]) for steps in hits_of)
    return Figures(total, hits / total, overlap / total, per_round)
