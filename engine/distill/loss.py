"""The loss: cross-entropy against the target's distribution, and the distance of hidden states."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class LossWeights:
    """What counts how much."""

    hidden: float = 1.0  # the distance to the target's final hidden state
    prompt: float = 0.2  # a token of the prompt, an answer's token being 1


class SoftLabelLoss(nn.Module):
    """Both terms over the hot vocabulary, with a head that is frozen and shared.

    The hidden term is the mean squared difference of the normed states, in units of the target
    states' own mean square, so that its weight means the same for every model.
    """

    def __init__(self, head: Tensor, weights: LossWeights) -> None:
        super().__init__()
        self.head, self.weights = head, weights

    def forward(self, student: Tensor, teacher: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """States [tokens, hidden] and weights [tokens] in; the total and the KL alone out."""
        teacher = teacher.to(student.dtype)
        with torch.no_grad():
            log_p = (teacher @ self.head.T).float().log_softmax(-1)
            p = log_p.exp()
            entropy = -(p * log_p).sum(-1)
        log_q = (student @ self.head.T).float().log_softmax(-1)
        total = weight.sum().clamp(min=1e-6)
        divergence = ((-(p * log_q).sum(-1) - entropy) * weight).sum() / total
        if self.weights.hidden == 0:
            return divergence, divergence.detach()
        reference = teacher.float()
        scale = reference.square().mean().clamp(min=1e-12)
        distance = (student.float() - reference).square().mean(-1) / scale
        # every token counts alike here: the target's states are as dense on prompts as on answers
        return divergence + self.weights.hidden * distance.mean(), divergence.detach()
