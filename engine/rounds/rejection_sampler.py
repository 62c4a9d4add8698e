"""Rejection sampling of a batch where its logits are (Leviathan et al. 2023, algorithm 1).

A draft token x, drawn from q, is accepted when u · q(x) < p(x); at a row's first rejection a
token is drawn from norm(max(p − q, 0)), and from p when all are accepted. What each row drew
is distributed as p, whatever q is. Probabilities of the whole vocabulary stay on the device:
to the host come the outcome and the two numbers of each test.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.models.host_transfer import to_device
from engine.models.kv_cache import LedgerArray
from engine.records.row import AcceptTest
from engine.rounds.sampling import ACCEPT, RESIDUAL, draw, uniform
from engine.rounds.sequence import Sequence


@dataclass(frozen=True)
class Outcome:
    """The outcome of one row: accepted draft tokens, the token after them, the tests made."""

    accepted: int
    bonus: int
    tests: tuple[AcceptTest, ...]


class Rejection:
    """Judges the draft tokens of all rows; `outcomes` reads what has come to the host.

    Args:
        p: the target's warped probabilities, [rows, K + 1, vocabulary].
        q: the draft's, [rows, K, vocabulary]; None: each draft token was certain.
        tokens: the draft tokens, [rows, K]; beyond a row's own K_i any id.
        counts: K_i.
        seed: of the draws, which are keyed by row and position.

    Attributes:
        parts: int64 tensors that have to cross to the host.
    """

    def __init__(
        self,
        p: Tensor,
        q: Tensor | None,
        tokens: Tensor,
        counts: Seq[int],
        rows: Seq[Sequence],
        seed: int,
    ) -> None:
        self._counts = counts
        width, device = tokens.shape[1], p.device
        self._draws = _uniforms(seed, rows, width, ACCEPT)
        at = tokens.clamp(max=p.shape[-1] - 1)[:, :, None]
        target = p[:, :width].gather(-1, at)[:, :, 0].double()
        draft = torch.ones_like(target) if q is None else q.gather(-1, at)[:, :, 0].double()
        limits = to_device(torch.tensor(counts), device)
        real = torch.arange(width, device=device) < limits[:, None]
        passed = (to_device(self._draws, device) * draft < target) & real
        accepted = passed.long().cumprod(dim=1).sum(dim=1)

        u = to_device(_uniforms(seed, rows, width + 1, RESIDUAL), device)
        after = _row_at(p, accepted)
        if width:
            rejected = accepted.clamp(max=width - 1)
            before = None if q is None else _row_at(q, rejected)
            left = self.residual(after, before, _row_at(at, rejected))
            # p = q and yet a rejection: rounding can do that
            some = (left > 0).any(dim=1) & (accepted < limits)
            after = left.where(some[:, None], after)
        bonus = draw(after, u.gather(1, accepted[:, None])[:, 0])
        # numbers cross as the whole numbers of the same bits
        bits = [target.view(torch.int64), draft.view(torch.int64)]
        self.parts = [tokens, accepted, bonus, *bits]

    @staticmethod
    def residual(p: Tensor, q: Tensor | None, token: Tensor) -> Tensor:
        """What is left of p for the draw after a rejection, not normalised, [rows, vocabulary].

        Args:
            token: the rejected one, [rows, 1].
        """
        return p.scatter(1, token, 0.0) if q is None else (p - q).clamp_min(0.0)

    def outcomes(self, parts: Seq[LedgerArray]) -> list[Outcome]:
        """The rows' outcomes, from `self.parts` on the host."""
        tokens, accepted, bonus, target, draft = parts
        p, q, u = target.view(np.float64), draft.view(np.float64), self._draws
        outcomes = []
        for place, count in enumerate(self._counts):
            kept = int(accepted[place])
            tests = tuple(
                AcceptTest(
                    token=int(tokens[place, k]),
                    draft_prob=float(q[place, k]),
                    target_prob=float(p[place, k]),
                    draw=float(u[place, k]),
                    accepted=k < kept,
                )
                for k in range(min(kept + 1, count))
            )
            outcomes.append(Outcome(kept, int(bonus[place]), tests))
        return outcomes


def _row_at(block: Tensor, at: Tensor) -> Tensor:
    """[rows, tokens, n] → [rows, n]: of each row the token at its own place."""
    index = at[:, None, None].expand(-1, 1, block.shape[-1])
    return block.gather(1, index)[:, 0]


def _uniforms(seed: int, rows: Seq[Sequence], count: int, purpose: int) -> Tensor:
    """[rows, count] the numbers for a row's next tokens, in float64."""
    drawn = [
        [uniform(seed, row.index, row.length + k, purpose) for k in range(count)] for row in rows
    ]
    return torch.tensor(drawn, dtype=torch.float64).view(len(rows), count)
