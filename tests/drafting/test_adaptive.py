"""`--draft-tokens auto`: the K that pays, found by the clock, at little loss."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from engine.config.settings import Settings
from engine.drafting.auto_k.adaptive import Adaptive, Selective
from engine.drafting.auto_k.costs import Costs
from engine.evaluation.oracle import Oracle
from engine.records.row import RowRound
from engine.records.schema import Phases, RoundRecord, Summary
from engine.runs.run import Run
from tests.tiny import mixed_prompts, tiny_pair

ROWS = 8


@dataclass
class Row:
    """As much of a row as a choice depends on."""

    index: int
    remaining: int = 100


BATCH: Any = [Row(index) for index in range(ROWS)]


def decode(
    chance: float, *, token: float, step: float, rounds: int = 150, seed: int = 0
) -> tuple[float, list[int]]:
    """Rounds of a made-up machine: 40 ms a verification and `token` ms for each token fed,
    `step` ms a draft step, ±5 %. Returns tokens per second and the K of each round."""
    rng = random.Random(seed)
    chooser = Adaptive(Costs())
    seconds, tokens, chosen = 0.0, 0, []
    for number in range(1, rounds + 1):
        k = chooser.choose(BATCH, refilled=True).draft_tokens
        rows = []
        for row in range(ROWS):
            accepted = 0
            while accepted < k and rng.random() < chance:
                accepted += 1
            committed = (1,) * (accepted + 1)
            rows.append(
                RowRound(row=row, draft_token_ids=(1,) * k, accepted=accepted, committed=committed)
            )
            tokens += accepted + 1
        noise = rng.uniform(0.95, 1.05)
        phases = Phases(
            verify=noise * (0.040 + token / 1e3 * ROWS * (1 + k)), draft=noise * k * step / 1e3
        )
        record = RoundRecord(round=number, rows=tuple(rows), draft_tokens=k, seconds=phases)
        chooser.observe(record)
        seconds += phases.total
        chosen.append(k)
    return tokens / seconds, chosen


def steady(chance: float, k: int, *, token: float, step: float) -> float:
    """Tokens per second of a fixed K, as the chances say."""
    tokens = ROWS * sum(chance**j for j in range(k + 1))
    return tokens / (0.040 + token / 1e3 * ROWS * (1 + k) + k * step / 1e3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("chance", [0.0, 0.1, 0.3])
def test_where_drafting_does_not_pay_little_is_lost(chance: float, seed: int) -> None:
    pace, chosen = decode(chance, token=1.3, step=25.0, seed=seed)
    assert pace >= 0.97 * steady(chance, 0, token=1.3, step=25.0)
    assert chosen[-50:].count(0) >= 45


@pytest.mark.parametrize("seed", range(5))
def test_where_drafting_pays_k_is_near_the_best(seed: int) -> None:
    pace, _ = decode(0.8, token=0.2, step=4.0, rounds=400, seed=seed)
    best = max(steady(0.8, k, token=0.2, step=4.0) for k in range(9))
    assert pace >= 0.93 * best
    assert pace >= 1.5 * steady(0.8, 0, token=0.2, step=4.0)


def test_every_choice_says_why() -> None:
    chooser = Adaptive(Costs())
    assert chooser.choose(BATCH, refilled=True).reason == "measuring K = 0"


def test_text_is_no_merit_of_k() -> None:
    """Half the rows draft text, all of which is accepted; the model is always wrong."""
    chooser = Adaptive(Costs())
    chosen = []
    for number in range(1, 80):
        k = chooser.choose(BATCH, refilled=True).draft_tokens
        rows = [
            RowRound(
                row=row, draft_token_ids=(1,) * 4, accepted=4, committed=(1,) * 5, by_text=True
            )
            if row % 2
            else RowRound(row=row, draft_token_ids=(1,) * k, committed=(1,))
            for row in range(ROWS)
        ]
        fed = sum(len(row.draft_token_ids) + 1 for row in rows)
        phases = Phases(verify=0.040 + 0.0005 * fed, draft=0.008 * k)
        chooser.observe(RoundRecord(round=number, rows=tuple(rows), draft_tokens=k, seconds=phases))
        chosen.append(k)
    assert chosen[-40:].count(0) >= 36


def test_where_nobody_waits_only_the_late_rows_draft() -> None:
    chooser = Selective(Costs())
    batch: Any = [Row(0, remaining=40), Row(1, remaining=39), Row(2, remaining=3)]
    assert chooser.choose(batch, refilled=True).rows is None
    choice = chooser.choose(batch, refilled=False)
    assert choice.rows == {0}, "at one token a round row 0 is the last"
    assert choice.reason.startswith("the late row only; ")


@pytest.mark.parametrize("method", ["eqspec", "rollback", "slotspec", "exspec"])
@pytest.mark.parametrize("lookup", [False, True])
def test_hurrying_some_rows_changes_no_token(method: str, lookup: bool) -> None:
    pair = replace(tiny_pair(), draft=None) if lookup else tiny_pair()
    prompts = mixed_prompts(7, seed=2)
    settings = Settings(method=method, batch_size=3, draft_tokens="auto", max_new_tokens=24)
    *records, summary = Run(pair, settings, prompts).records()
    assert isinstance(summary, Summary)
    answers = Oracle(pair).answers(prompts, Settings(max_new_tokens=24))
    assert [row.output_ids for row in summary.rows] == [a.output_ids for a in answers]
    rounds = [record for record in records if isinstance(record, RoundRecord)]
    hurried = any(
        " late row" in record.draft_choice.note for record in rounds if record.draft_choice
    )
    assert hurried == (method != "rollback"), "rollback cuts all rows to the shortest"
