"""Sampling is lossless: chi-squared tests against the target's exact distribution.

Many rows with one prompt, each with random streams of its own, are as many independent
draws. Every drawn token counts as a draw from the target's distribution after the
tokens before it, which is computed from the target alone. Seeds are fixed, so a test
that passes always passes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from engine.config.settings import Sampling, Settings
from engine.methods.rollback import Shortest
from engine.models.forward_input import Feed
from engine.models.host_transfer import Crossing
from engine.models.kv_cache import KVStore, Write
from engine.pairs.load import Pair
from engine.records.schema import Prompt
from engine.rounds.acceptance import Verdict
from engine.rounds.draft_model import DraftTokens, ModelDraft
from engine.rounds.packed_logits import Logits
from engine.rounds.rejection_sampler import Rejection
from engine.rounds.sampling import Sampler, draw, uniform, warp
from engine.rounds.sequence import Sequence
from engine.runs.run import Run
from tests.cases import SPECULATIVE
from tests.tiny import prompts_of, tiny_pair

VOCABULARY = 6
PROMPT = (3, 1, 4, 3, 1)
ROWS = 5200
DEPTH = 4
"""Tokens of each row that are tested: 4 × 5200 draws."""

PLANS = {
    "K=1, T=1": (1, Sampling(temperature=1.0)),
    "K=2, T=0.7, top-k 4": (2, Sampling(temperature=0.7, top_k=4)),
    "K=3, T=1.5, top-p 0.9": (3, Sampling(temperature=1.5, top_p=0.9)),
    "K=4, T=1, top-k 5, top-p 0.95": (4, Sampling(temperature=1.0, top_k=5, top_p=0.95)),
}


LOOKUP = "slotspec, lookup"
STOPPING = "slotspec, rows that stop when they are unsure"
CHECKS = [(method, plan) for method in SPECULATIVE for plan in PLANS]
CHECKS += [("autoregressive", "K=1, T=1"), (LOOKUP, "K=3, T=1.5, top-p 0.9")]
CHECKS += [(STOPPING, "K=4, T=1, top-k 5, top-p 0.95")]


THRESHOLD = 0.1
"""Of the rows that stop: about every second draft token is less likely than that."""


@lru_cache(maxsize=1)
def pair() -> Pair:
    return tiny_pair(vocabulary=VOCABULARY, layers=1, noise=0.1, eos_ids=(), spread=0.1)


@dataclass(frozen=True)
class ChiSquared:
    """Pearson's test: the statistic, its degrees of freedom, the p-value, and the draws."""

    statistic: float
    freedom: int
    p: float
    draws: int


def chi_squared(outputs: list[tuple[int, ...]], sampling: Sampling) -> ChiSquared:
    """Test each token given those before it. Cells that expect fewer than 5 draws are put
    together; a token of probability zero must never be drawn."""
    after: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for output in outputs:
        for place in range(DEPTH):
            after[output[:place]][output[place]] += 1
    exact = distributions([*after], sampling)
    statistic, freedom, draws = 0.0, 0, 0
    for prefix, counts in after.items():
        total = counts.total()
        draws += total
        cells = []
        for token, probability in enumerate(exact[prefix].tolist()):
            if probability == 0.0:
                assert counts[token] == 0, f"token {token} after {prefix} has probability 0"
            else:
                cells.append((total * probability, counts[token]))
        cells = pooled(cells)
        statistic += sum((seen - expected) ** 2 / expected for expected, seen in cells)
        freedom += len(cells) - 1
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return ChiSquared(statistic, freedom, float(torch.special.gammaincc(half[0], half[1])), draws)


def pooled(cells: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Put cells together, the smallest first, until each expects 5 draws or one is left."""
    cells = sorted(cells, reverse=True)
    while len(cells) > 1 and cells[-1][0] < 5.0:
        (expected, seen), (more, too) = cells.pop(), cells.pop()
        cells = sorted([*cells, (expected + more, seen + too)], reverse=True)
    return cells


def distributions(
    prefixes: list[tuple[int, ...]], sampling: Sampling
) -> dict[tuple[int, ...], Tensor]:
    """The target's own next-token distribution after the prompt and each prefix."""
    found = {}
    for length in {len(prefix) for prefix in prefixes}:
        group = [prefix for prefix in prefixes if len(prefix) == length]
        ids = torch.tensor([(*PROMPT, *prefix) for prefix in group])
        rows, tokens = ids.shape
        store = KVStore()
        store.clear(rows, tokens)
        feed = Feed(
            ids,
            torch.arange(tokens).expand(rows, -1),
            torch.ones(tokens, tokens, dtype=torch.bool).tril().expand(rows, 1, -1, -1),
            Write(rows=rows, read=tokens, start=0),
        )
        with torch.inference_mode():
            logits = pair().target.forward(feed, store, keep=1)[:, -1]
        probs = warp(logits, sampling).double()
        found |= dict(zip(group, probs, strict=True))
    return found


class ShortestOfFour(Shortest):
    """rollback as in batches of four: the shortest acceptance of hundreds is always 0."""

    def judge(
        self, logits: Logits, drafted: DraftTokens, rows: list[Sequence], sampler: Sampler
    ) -> list[Verdict]:
        verdicts = []
        for start in range(0, len(rows), 4):
            four = slice(start, start + 4)
            probs = None if drafted.probs is None else drafted.probs[four]
            part = DraftTokens(drafted.tokens[four], drafted.counts[four], probs)
            logits_of_four = Logits(logits.whole[four], [count + 1 for count in part.counts])
            verdicts += super().judge(logits_of_four, part, rows[four], sampler)
        return verdicts


def drawn(method: str, draft_tokens: int, sampler: Sampler | None, sampling: Sampling) -> Any:
    """Outputs of all rows, and how often draft tokens were accepted and rejected."""
    models = replace(pair(), draft=None) if method == LOOKUP else pair()
    settings = Settings(
        method=method.partition(",")[0],
        batch_size=650,
        window=650,
        draft_tokens=draft_tokens,
        max_new_tokens=max(DEPTH, draft_tokens + 1),
        sampling=sampling,
    )
    job = Run(models, settings, prompts_of([PROMPT] * ROWS))
    if sampler is not None:
        job.loop.sampler = sampler
    if method == "rollback":
        job.loop.accept = ShortestOfFour()
    if method == STOPPING:
        job.loop.drafter = ModelDraft(128, THRESHOLD)
    for _ in job.records():
        pass
    rows = job.summary().rows
    drafted, accepted = sum(row.drafted for row in rows), sum(row.accepted for row in rows)
    return [row.output_ids for row in rows], accepted, drafted


@pytest.mark.slow
@pytest.mark.parametrize(("method", "plan"), CHECKS)
def test_case_15_every_method_draws_from_the_targets_distribution(
    method: str, plan: str, record_property: Any
) -> None:
    draft_tokens, sampling = PLANS[plan]
    # with one seed the methods would draw the very same tokens
    sampling = msgspec.structs.replace(sampling, seed=CHECKS.index((method, plan)))
    outputs, accepted, drafted = drawn(method, draft_tokens, None, sampling)
    found = chi_squared(outputs, sampling)
    record_property("p", found.p)
    print(f"{method}, {plan}: χ² {found.statistic:.1f} / {found.freedom}, p = {found.p:.3f}")
    assert found.draws >= 20_000
    assert found.p > 1e-3
    if drafted:
        least = 0.2 if method in ("eqspec", "exspec", "slotspec", STOPPING) else 0.05
        assert least < accepted / drafted < 0.95, "the draft is neither useless nor perfect"


class AnotherQ(Sampler):
    """Wrong: the q it returns is not the one it drew the draft tokens from."""

    def draft(self, *given: Any) -> tuple[Tensor, Tensor | None]:
        tokens, q = super().draft(*given)
        if q is None:
            return tokens, None
        flat = q.sqrt()
        return tokens, flat / flat.sum(dim=-1, keepdim=True)


def not_subtracted(p: Tensor, q: Tensor | None, token: Tensor) -> Tensor:
    """Wrong: after a rejection it is drawn from p, and not from what q leaves of it."""
    return p


@pytest.mark.parametrize("wrong", [not_subtracted, AnotherQ])
def test_case_15_a_wrong_rule_is_caught(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    draft_tokens, sampling = PLANS["K=2, T=0.7, top-k 4"]
    sampler = None
    if wrong is not_subtracted:
        monkeypatch.setattr(Rejection, "residual", staticmethod(wrong))
    else:
        sampler = wrong(sampling, VOCABULARY)
    outputs, _, _ = drawn("eqspec", draft_tokens, sampler, sampling)
    found = chi_squared(outputs, sampling)
    print(f"{wrong.__name__}: χ² {found.statistic:.1f} / {found.freedom}, p = {found.p:.2g}")
    assert found.p < 1e-9


# ---- the parts ------------------------------------------------------------------------


def test_warp_keeps_what_top_k_and_top_p_say() -> None:
    logits = torch.tensor([3.0, 2.0, 1.0, 0.0, -1.0])
    plain = warp(logits, Sampling(temperature=1.0))
    torch.testing.assert_close(plain, logits.softmax(-1))
    best = warp(logits, Sampling(temperature=1.0, top_k=2))
    assert (best > 0).tolist() == [True, True, False, False, False]
    torch.testing.assert_close(best[0] / best[1], plain[0] / plain[1])
    share = warp(logits, Sampling(temperature=1.0, top_p=0.7))
    assert (share > 0).tolist() == [True, True, False, False, False]
    assert (warp(logits, Sampling(temperature=1.0, top_p=0.01)) > 0).sum() == 1


def test_a_draw_never_takes_a_token_of_probability_zero() -> None:
    probs = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).repeat(4, 1)
    u = torch.tensor([0.0, 0.4999999, 0.5, 0.99999999999], dtype=torch.float64)
    assert draw(probs, u).tolist() == [1, 1, 3, 3]


def test_random_numbers_are_uniform_and_keyed() -> None:
    drawn_numbers = [uniform(0, row, place, 0) for row in range(100) for place in range(40)]
    assert len(set(drawn_numbers)) == 4000
    counts = torch.histc(torch.tensor(drawn_numbers), bins=10, min=0.0, max=1.0)
    assert float(((counts - 400) ** 2 / 400).sum()) < 30
    assert uniform(0, 1, 2, 0) == uniform(0, 1, 2, 0)
    assert len({uniform(0, 1, 2, 0), uniform(1, 1, 2, 0), uniform(0, 1, 2, 1)}) == 3


def test_a_residual_of_nothing_falls_back_to_p() -> None:
    """p = q and yet a rejection (rounding can do that): draw from p, never from zeros."""
    p = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    row = Sequence(Prompt(index=0, ids=(1,)), budget=5, context=64, eos_ids=frozenset())
    for q in (p[None, :1], None):
        rejection = Rejection(torch.zeros(1, 2, 2), q, torch.tensor([[0]]), [1], [row], seed=0)
        (outcome,) = rejection.outcomes(Crossing(rejection.parts).arrived())
        assert outcome.accepted == 0
        assert outcome.bonus in (0, 1)
