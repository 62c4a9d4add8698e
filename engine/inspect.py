"""A round looked at closely: how sure both models were, and what else the target thought of.

Only where `Settings.inspect` asks for it. Nothing is computed while the round's phases are
timed: what the draft said is kept until the round has been judged, and then a softmax and a
top-k over the rows' logits cross to the host together, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace

import torch
from msgspec import structs
from torch import Tensor
from torch.nn.functional import one_hot

from engine.accept import Verdict
from engine.draft import Proposals
from engine.model import LanguageModel
from engine.records import AcceptTest, BonusChoice
from engine.sampling import RESIDUAL, Sampler, uniform, warp
from engine.sequence import Sequence
from engine.settings import Sampling

BEST = 5
"""How many of the target's best tokens are told at each place."""

Top = tuple[tuple[int, float], ...]


class NotingSampler(Sampler):
    """Notes what each proposal was drawn from, and can be told what to propose."""

    def __init__(self, sampling: Sampling, vocabulary: int) -> None:
        super().__init__(sampling, vocabulary)
        self.wanted: dict[int, tuple[int, ...]] = {}
        """By request index: the tokens that the row proposes first in the next round."""
        self._noted: list[tuple[LanguageModel, Tensor, Tensor]] = []

    def propose(
        self, model: LanguageModel, logits: Tensor, rows: list[Sequence], step: int
    ) -> tuple[Tensor, Tensor | None]:
        if step == 0:
            self._noted.clear()
        tokens, q = super().propose(model, logits, rows, step)
        for place, row in enumerate(rows):
            wanted = self.wanted.get(row.index, ())
            if step < len(wanted):
                tokens[place] = wanted[step]
                if q is not None:  # it is certain: the rule stays lossless
                    q[place] = one_hot(tokens[place], q.shape[-1]).to(q)
        self._noted.append((model, logits, tokens))
        return tokens, q

    def draft_probs(self) -> Tensor | None:
        """The draft's probability of each proposal, [rows, K], and forget the round; None:
        no model proposed anything."""
        noted, self._noted = self._noted, []
        if not noted:
            return None
        return torch.stack([_chance(*entry) for entry in noted], dim=1)


def _chance(model: LanguageModel, logits: Tensor, tokens: Tensor) -> Tensor:
    """Softmax of each row's token, [rows]; 0 for what the draft's head does not know."""
    probs = logits.float().softmax(dim=-1)
    if model.hot_ids is None:
        known = tokens < probs.shape[-1]
        found = probs.gather(1, tokens.clamp(max=probs.shape[-1] - 1)[:, None])[:, 0]
        return found.where(known, torch.zeros_like(found))
    return (probs * (model.hot_ids[None] == tokens[:, None])).sum(dim=-1)


class Inspection:
    """Adds to each verdict how it came about."""

    def __init__(self, sampler: NotingSampler) -> None:
        self.sampler = sampler

    def look(
        self, logits: Tensor, proposals: Proposals, rows: Seq[Sequence], verdicts: list[Verdict]
    ) -> list[Verdict]:
        """Call between the judgement and the commit.

        Args:
            logits: the target's, [rows, K + 1, vocabulary].
        """
        sampling = self.sampler.sampling
        p = logits.float().softmax(dim=-1) if sampling.greedy else warp(logits, sampling)
        _, width, vocabulary = p.shape
        tokens = proposals.tokens.to(p.device)
        best = p.topk(min(BEST, vocabulary), dim=-1)
        ends = torch.tensor([[min(v.accepted, width - 1)] for v in verdicts], device=p.device)
        bonus = torch.tensor([[v.bonus or 0] for v in verdicts], device=p.device)
        at_end = p.gather(1, ends[..., None].expand(-1, -1, vocabulary))[:, 0]
        residual = self._residual(at_end, proposals, ends[:, 0])
        draft = self.sampler.draft_probs()
        wanted = self.sampler.wanted
        figures = _on_host(
            {
                "p": p[:, : tokens.shape[1]].gather(-1, tokens[..., None])[..., 0],
                "bonus": at_end.gather(-1, bonus),
                "residual": residual.gather(-1, bonus) / residual.sum(dim=-1, keepdim=True),
                "probs": best.values.flatten(1),
                "ids": best.indices.flatten(1),
                "q": p.new_ones(tokens.shape) if draft is None else draft,
            }
        )
        told = []
        for row, verdict, values in zip(rows, verdicts, figures, strict=True):
            forced = min(len(wanted.pop(row.index, ())), len(verdict.proposals))
            if verdict.finite:
                verdict = self._tell(row, replace(verdict, forced=forced), **values)
            told.append(verdict)
        return told

    def _residual(self, p: Tensor, proposals: Proposals, ends: Tensor) -> Tensor:
        """What a rejected proposal leaves of p, max(p − q, 0) (p itself where that is nothing).

        Args:
            p: at the first place that was not accepted, [rows, vocabulary].
        """
        if self.sampler.sampling.greedy or not proposals.tokens.shape[1]:
            return p
        at = ends.clamp(max=proposals.tokens.shape[1] - 1)
        tokens = proposals.tokens.to(p.device).gather(1, at[:, None])
        if proposals.probs is None:
            left = p.scatter(1, tokens, 0.0)
        else:
            q = proposals.probs.to(p.device)
            q = q.gather(1, at[:, None, None].expand(-1, -1, q.shape[-1]))[:, 0]
            left = (p - q).clamp_min(0.0)
        return left.where(left.sum(dim=-1, keepdim=True) > 0, p)

    def _tell(
        self,
        row: Sequence,
        verdict: Verdict,
        *,
        p: list[float],
        bonus: list[float],
        residual: list[float],
        probs: list[float],
        ids: list[float],
        q: list[float],
    ) -> Verdict:
        count = len(verdict.proposals)
        each = min(BEST, len(ids))
        tops: list[Top] = []
        for at in range(count + 1):
            cells = range(at * each, (at + 1) * each)
            tops.append(tuple((int(ids[c]), round(probs[c], 6)) for c in cells if probs[c] > 0.0))
        tests = []
        for at, token in enumerate(verdict.proposals):
            if at < len(verdict.tests):
                tests.append(structs.replace(verdict.tests[at], top=tops[at]))
                continue
            tests.append(
                AcceptTest(
                    token=token,
                    draft_prob=round(q[at], 6),
                    target_prob=round(p[at], 6),
                    accepted=at < len(verdict.choices)
                    and verdict.choices[: at + 1] == verdict.proposals[: at + 1],
                    top=tops[at],
                )
            )
        sampling = self.sampler.sampling
        greedy = sampling.greedy
        end = verdict.accepted
        choice = BonusChoice(
            target_prob=round(bonus[0], 6),
            residual_prob=None if greedy or end == count else round(residual[0], 6),
            draw=None if greedy else uniform(sampling.seed, row.index, row.length + end, RESIDUAL),
            top=tops[end],
        )
        return replace(verdict, tests=tuple(tests), choice=choice)


def _on_host(parts: Mapping[str, Tensor]) -> list[dict[str, list[float]]]:
    """The rows of several [rows, n] tensors, in one transfer.

    Whole numbers below 2 ** 24, as token ids are, survive float32.
    """
    device = parts["p"].device
    joined = torch.cat([part.to(device).float() for part in parts.values()], dim=1).tolist()
    rows = []
    for values in joined:
        row, at = {}, 0
        for name, part in parts.items():
            row[name] = values[at : at + part.shape[1]]
            at += part.shape[1]
        rows.append(row)
    return rows
