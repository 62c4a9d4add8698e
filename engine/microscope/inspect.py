"""A round looked at closely: how sure both models were, and what else the target thought of.

Only where `Settings.inspect` asks for it. Nothing is computed while the round's phases are
timed: what the draft said is kept until the round has been verified, and then a softmax and a
top-k over the rows' logits cross to the host together, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace

import torch
from msgspec import structs
from torch import Tensor
from torch.nn.functional import one_hot, pad

from engine.config.settings import Sampling
from engine.models.causal_lm import LanguageModel
from engine.records.row import AcceptTest, BonusChoice
from engine.rounds.acceptance import Verdict
from engine.rounds.draft_model import DraftTokens
from engine.rounds.packed_logits import Logits
from engine.rounds.sampling import RESIDUAL, Sampler, uniform
from engine.rounds.sequence import Sequence

BEST = 5
"""How many of the target's best tokens are recorded at each place."""

Top = tuple[tuple[int, float], ...]


class NotingSampler(Sampler):
    """Notes what each draft token was drawn from; can force what is drafted."""

    def __init__(self, sampling: Sampling, vocabulary: int, never: Tensor | None = None) -> None:
        super().__init__(sampling, vocabulary, never)
        self.wanted: dict[int, tuple[int, ...]] = {}
        """By request index: the tokens that the row drafts first in the next round."""
        self._noted: list[tuple[LanguageModel, Tensor]] = []
        self._warped: Tensor | None = None
        self._head: Tensor | None = None

    def forced(self, row: Sequence) -> int:
        return len(self.wanted.get(row.index, ()))

    def draft(
        self, model: LanguageModel, logits: Tensor, rows: list[Sequence], step: int
    ) -> tuple[Tensor, Tensor | None]:
        if step == 0:
            self._noted.clear()
        logits = self.draftable(model, logits)
        tokens, q = super().draft(model, logits, rows, step)
        for place, row in enumerate(rows):
            wanted = self.wanted.get(row.index, ())
            if step < len(wanted):
                tokens[place] = wanted[step]
                if q is not None:  # it is certain: the rule stays lossless
                    q[place] = one_hot(tokens[place], q.shape[-1]).to(q)
        self._noted.append((model, logits))
        return tokens, q

    def warp(self, logits: Tensor) -> Tensor:
        self._warped = super().warp(logits)
        return self._warped

    def target_probs(self, logits: Tensor) -> Tensor:
        """The target's probabilities, [..., vocabulary]: those that were drawn from, or all
        that greedy decoding chose among."""
        warped, self._warped = self._warped, None
        if self.sampling.greedy:
            return logits.float().softmax(dim=-1)
        return super().warp(logits) if warped is None else warped

    def draft_probs(self, tokens: Tensor) -> Tensor | None:
        """The draft's probability of each draft token, [rows, K], and forget the round; None:
        no model drafted them.

        Args:
            tokens: the draft tokens, [rows, K].
        """
        noted, self._noted = self._noted, []
        if not noted:
            return None
        model, width = noted[0][0], tokens.shape[1]
        probs = torch.stack([logits for _, logits in noted], dim=1).float().softmax(dim=-1)
        columns = self._columns(model, tokens[:, : len(noted)].to(probs.device))
        known = (columns >= 0) & (columns < probs.shape[-1])
        found = probs.gather(-1, columns.where(known, 0)[..., None])[..., 0]
        return pad(found.where(known, 0.0), (0, width - len(noted)))

    def _columns(self, model: LanguageModel, tokens: Tensor) -> Tensor:
        """The columns of these tokens in the draft's head; −1: it has none for them."""
        if model.hot_ids is None:
            return tokens
        if self._head is None:
            size = max(self.vocabulary, int(model.hot_ids.max()) + 1)
            self._head = model.hot_ids.new_full((size,), -1)
            self._head[model.hot_ids] = torch.arange(
                len(model.hot_ids), device=self._head.device, dtype=self._head.dtype
            )
        return self._head[tokens]


class Inspection:
    """Adds to each verdict how it came about."""

    def __init__(self, sampler: NotingSampler) -> None:
        self.sampler = sampler

    def look(
        self, logits: Logits, drafted: DraftTokens, rows: Seq[Sequence], verdicts: list[Verdict]
    ) -> list[Verdict]:
        """Call between the judgement and the commit.

        Args:
            logits: the target's.
        """
        p = self.sampler.target_probs(logits.whole)
        _, width, vocabulary = p.shape
        tokens = drafted.tokens.to(p.device)
        best = p.topk(min(BEST, vocabulary), dim=-1)
        ends = torch.tensor([[min(v.accepted, width - 1)] for v in verdicts], device=p.device)
        bonus = torch.tensor([[v.bonus or 0] for v in verdicts], device=p.device)
        at_end = p.gather(1, ends[..., None].expand(-1, -1, vocabulary))[:, 0]
        chosen = at_end.gather(-1, bonus)
        residual = self._residual(at_end, drafted, ends[:, 0])
        draft = self.sampler.draft_probs(drafted.tokens)
        if draft is not None:
            draft[list(drafted.texts)] = 1.0  # nothing was drawn
        wanted = self.sampler.wanted
        figures = _on_host(
            {
                "p": p[:, : tokens.shape[1]].gather(-1, tokens[..., None])[..., 0],
                "bonus": chosen,
                "residual": chosen
                if residual is None
                else residual.gather(-1, bonus) / residual.sum(dim=-1, keepdim=True),
                "probs": best.values.flatten(1),
                "ids": best.indices.flatten(1),
                "q": p.new_ones(tokens.shape) if draft is None else draft.to(p),
            }
        )
        inspected = []
        for row, verdict, values in zip(rows, verdicts, figures, strict=True):
            forced = min(len(wanted.pop(row.index, ())), len(verdict.draft_token_ids))
            if verdict.finite:
                verdict = self._tell(row, replace(verdict, forced=forced), **values)
            inspected.append(verdict)
        return inspected

    def _residual(self, p: Tensor, drafted: DraftTokens, ends: Tensor) -> Tensor | None:
        """What a rejected draft token leaves of p, max(p − q, 0) (p itself where that is nothing).
        Greedy decoding draws from nothing.

        Args:
            p: at the first place that was not accepted, [rows, vocabulary].
        """
        if self.sampler.sampling.greedy or not drafted.tokens.shape[1]:
            return None
        at = ends.clamp(max=drafted.tokens.shape[1] - 1)
        tokens = drafted.tokens.to(p.device).gather(1, at[:, None])
        if drafted.probs is None:
            left = p.scatter(1, tokens, 0.0)
        else:
            q = drafted.probs.to(p.device)
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
        count = len(verdict.draft_token_ids)
        each = min(BEST, len(ids))
        tops: list[Top] = []
        for at in range(count + 1):
            cells = range(at * each, (at + 1) * each)
            tops.append(tuple((int(ids[c]), round(probs[c], 6)) for c in cells if probs[c] > 0.0))
        tests = []
        for at, token in enumerate(verdict.draft_token_ids):
            if at < len(verdict.tests):
                tests.append(structs.replace(verdict.tests[at], top=tops[at]))
                continue
            tests.append(
                AcceptTest(
                    token=token,
                    draft_prob=round(q[at], 6),
                    target_prob=round(p[at], 6),
                    accepted=verdict.choices[: at + 1] == verdict.draft_token_ids[: at + 1]
                    if verdict.choices
                    else at < verdict.accepted,
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
