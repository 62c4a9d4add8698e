"""How good a draft is: agreement with the target's greedy answers, overlap, tokens per round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engine.distill.labels import Labels, by_length, hidden_states, pad_rows


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


def rounds(hits: Sequence[bool], draft_tokens: int) -> tuple[int, int]:
    """Accepted tokens and rounds of greedy speculation over an answer.

    ``hits[t]`` says whether the draft, given the answer before t, proposes the target's token t. A
    round accepts the hits up to the first miss and commits the target's token after them.
    """
    place = accepted = count = 0
    while place < len(hits):
        count += 1
        room = min(draft_tokens, len(hits) - place - 1)
        run = 0
        while run < room and hits[place + run]:
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
    teacher-forced pass give its rounds exactly.
    """
    data = labels.data
    chosen = [
        i for i in (range(len(data)) if indices is None else indices) if data.answer_start[i] != 0
    ]
    hits_of: list[list[bool]] = []
    overlap = 0.0
    hot = hot_ids.to(head.device)
    for group in by_length(data, chosen, 4096, labels.limit):
        ids, real = pad_rows(data, group, labels.limit)
        states = hidden_states(draft, ids)
        truth = labels.rows(group, ids.shape[1]).to(head.device)
        for row, i in enumerate(group):
            start, end = max(1, int(data.answer_start[i])), int(real[row].sum())
            if end <= start:
                continue
            student = draft.lm_head(states[row, start - 1 : end - 1]).float()
            wanted = (truth[row, start - 1 : end - 1].to(head.dtype) @ head.T).float()
            hits_of.append((hot[student.argmax(-1)] == wanted.argmax(-1)).tolist())
            p = wanted.softmax(-1)[:, hot]
            overlap += float(torch.minimum(p, student.softmax(-1)).sum())
    total = sum(map(len, hits_of))
    if total == 0:
        return Figures(0, 0.0, 0.0, dict.fromkeys(ks, 1.0))
    per_round = {}
    for k in ks:
        pairs = [rounds(hits, k) for hits in hits_of]
        per_round[k] = 1 + sum(a for a, _ in pairs) / sum(n for _, n in pairs)
    return Figures(total, sum(map(sum, hits_of)) / total, overlap / total, per_round)
