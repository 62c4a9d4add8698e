"""The published baselines: token by token as published, and broken where they are said to be."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, OPTConfig, OPTForCausalLM

from engine.config.errors import UserError
from engine.models.causal_lm import LanguageModel
from engine.pairs.load import Pair
from engine.records.schema import PairInfo
from engine.text.tokenizer import Tokenizer
from tests.places import GOLDEN
from tests.tiny import (
    KINDS,
    broken_forward,
    finished,
    mixed_prompts,
    prompts_of,
    tiny_pair,
)

RANDOM = json.loads((GOLDEN / "random" / "cases.json").read_text())
BASELINES = ("bsp", "dsd")


@lru_cache
def golden_pair(directory: str, pad_id: int, eos_id: int) -> Pair:
    models = [
        AutoModelForCausalLM.from_pretrained(GOLDEN / directory / side, dtype=torch.float32)
        for side in ("target", "draft")
    ]
    target, draft = (LanguageModel(model, eos_ids=(eos_id,)) for model in models)
    tokenizer = Tokenizer(
        None, name="golden", eos_ids=(eos_id,), pad_id=pad_id, vocabulary=target.vocabulary
    )
    info = PairInfo(name=directory, context=target.context, eos_ids=(eos_id,), pad_id=pad_id)
    return Pair(info=info, target=target, draft=draft, tokenizer=tokenizer)


def golden_run(pair: Pair, case: dict[str, Any], method: str) -> Any:
    return finished(
        pair,
        prompts_of(case["prompt_ids"]),
        method=method,
        batch_size=case["batch_size"],
        draft_tokens=case["draft_tokens"],
        max_new_tokens=case["max_new_tokens"],
    )


@pytest.mark.parametrize("method", ["autoregressive", "eqspec", "exspec", "bsp", "dsd"])
def test_pair_a_is_exact(method: str) -> None:
    case = json.loads((GOLDEN / "pair-a" / "golden.json").read_text())
    config = json.loads((GOLDEN / "pair-a" / "target" / "generation_config.json").read_text())
    pair = golden_pair("pair-a", config["pad_token_id"], config["eos_token_id"])
    run = golden_run(pair, case, method)
    assert [list(ids) for ids in run.outputs] == case["output_ids"][method]
    broken = {violation.invariant for _, violation in run.violations}
    expected = {"bsp": {"I2", "I3"}, "dsd": {"I1", "I2", "I4", "I5"}}
    assert broken == expected.get(method, set())


@pytest.mark.parametrize("method", BASELINES)
@pytest.mark.parametrize("case", RANDOM, ids=[case["directory"] for case in RANDOM])
def test_random_pairs_are_exact(case: dict[str, Any], method: str) -> None:
    directory = f"random/{case['directory']}"
    pair = golden_pair(directory, case["pad_token_id"], case["eos_token_id"])
    run = golden_run(pair, case, method)
    assert [list(ids) for ids in run.outputs] == case["output_ids"][method]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("method", BASELINES)
def test_runs_on_any_pair_and_never_crashes(method: str, kind: str) -> None:
    """Small contexts, pad = eos, a draft with another head, one row, one-token prompts."""
    for seed, batch_size, draft_tokens, budget, context in (
        (0, 4, 3, 60, 32),
        (1, 1, 5, 9, 128),
        (2, 8, 1, 1, 24),
        (3, 3, 7, 0, 128),
        (4, 3, 4, 40, 21),
    ):
        pair = tiny_pair(kind, seed=seed, context=context, draft_vocabulary=48)
        prompts = mixed_prompts(7, seed=seed, longest=20)
        run = finished(
            pair,
            prompts,
            method=method,
            batch_size=batch_size,
            draft_tokens=draft_tokens,
            max_new_tokens=budget,
        )
        assert set(run.reasons) <= {"length", "context", "batch"}
        assert [row.prompt_ids for row in run.summary.rows] == [prompt.ids for prompt in prompts]
        for row in run.summary.rows:
            assert len(row.output_ids) <= budget
            assert len(row.prompt_ids) + len(row.output_ids) <= context
            if row.finish_reason == "length":
                assert len(row.output_ids) == budget or method == "dsd"


@pytest.mark.parametrize("method", BASELINES)
def test_the_records_tell_the_whole_row(method: str) -> None:
    """Every row's cells add up to the rectangle, and hold each committed token once."""
    run = finished(tiny_pair(), mixed_prompts(6), method=method, max_new_tokens=24)
    for record in run.rounds:
        for row in record.rows:
            if row.finish_reason is None:
                assert sum(span.length for span in row.kept) == record.length
            for spans, total in ((row.fed, row.before), (row.kept, row.content)):
                own = [span for span in spans if span.kind in ("content", "ghost")]
                assert [i for s in own for i in range(s.first, s.first + s.length)] == list(
                    range(total)
                )


def test_positions_are_the_whole_fault_of_bsp(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family that counts positions from the mask makes bsp equal the oracle."""
    pair = tiny_pair(eos_ids=(), pad_id=0)
    prompts = mixed_prompts(6)
    oracle = finished(pair, prompts, method="autoregressive", batch_size=1, max_new_tokens=24)
    bsp = finished(pair, prompts, method="bsp", max_new_tokens=24)
    assert bsp.outputs != oracle.outputs
    for model in (pair.target, pair.draft):
        monkeypatch.setattr(model, "family", "opt")
    mended = finished(pair, prompts, method="bsp", max_new_tokens=24)
    assert mended.outputs == oracle.outputs
    assert mended.violations == []


def test_opt_takes_its_positions_from_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "opt", opt)
    pair = tiny_pair("opt", eos_ids=(), pad_id=0)
    prompts = mixed_prompts(5)
    oracle = finished(pair, prompts, method="autoregressive", batch_size=1, max_new_tokens=16)
    bsp = finished(pair, prompts, method="bsp", max_new_tokens=16)
    assert bsp.outputs == oracle.outputs
    assert bsp.violations == []
    dsd = finished(pair, prompts, method="dsd", max_new_tokens=16)
    assert {violation.invariant for _, violation in dsd.violations} >= {"I2", "I4", "I5"}


def opt(vocabulary: int, layers: int, context: int, spread: float) -> Any:
    return OPTForCausalLM(
        OPTConfig(
            vocab_size=vocabulary,
            hidden_size=32,
            word_embed_proj_dim=32,
            ffn_dim=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            max_position_embeddings=context,
            init_std=spread,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )


@pytest.mark.parametrize("method", BASELINES)
def test_a_row_with_non_finite_logits_leaves_the_others_alone(method: str) -> None:
    pair = tiny_pair()

    def damage(call: int, feed: Any, logits: torch.Tensor) -> torch.Tensor:
        if call == 3:  # past the prefill
            logits[1] = float("nan")
        return logits

    with broken_forward(pair.target, damage):
        run = finished(pair, mixed_prompts(4), method=method, max_new_tokens=12)
    assert run.reasons[1] == "error"
    assert "error" not in run.reasons[:1] + run.reasons[2:]
    assert all(len(run.outputs[row]) > 0 for row in (0, 2, 3))


def test_bsp_goes_on_past_eos_and_dsd_stops_the_batch() -> None:
    pair = tiny_pair(eos_ids=(0, 1, 2, 3, 4, 5, 6, 7), context=512)
    prompts = mixed_prompts(4)
    bsp = finished(pair, prompts, method="bsp", max_new_tokens=30)
    assert bsp.reasons == ["length"] * 4
    assert any(token < 8 for ids in bsp.outputs for token in ids[:-1])
    dsd = finished(pair, prompts, method="dsd", max_new_tokens=30)
    assert set(dsd.reasons) == {"length", "batch"}
    last = dsd.rounds[-1]
    assert {row.finish_reason for row in last.rows} == {"length", "batch"}


def test_bsp_never_moves_anything_and_keeps_every_rejected_slot() -> None:
    run = finished(tiny_pair(), mixed_prompts(4), method="bsp", max_new_tokens=24, draft_tokens=3)
    assert run.summary.totals.realign_bytes == 0
    lengths = [record.length for record in run.rounds[:-1]]
    assert all(after - before == 4 for before, after in pairwise(lengths[1:]))
    rows = [row for record in run.rounds for row in record.rows]
    assert any(span.kind == "stale" for row in rows for span in row.kept)


def test_dsd_piles_up_padding() -> None:
    run = finished(tiny_pair(), mixed_prompts(4), method="dsd", max_new_tokens=30)
    for earlier, later in pairwise(run.rounds):
        before = {row.row: row.padding for row in earlier.rows}
        stay = [row for row in later.rows if row.finish_reason is None]
        assert all(row.padding >= before[row.row] for row in stay if row.row in before)
    assert any(violation.invariant == "I1" for _, violation in run.violations)


def test_what_the_baselines_cannot_do_is_said() -> None:
    pair = tiny_pair()
    with pytest.raises(UserError, match="draft model"):
        finished(pair, mixed_prompts(2), method="dsd", draft_tokens=0)
    run = finished(pair, mixed_prompts(2), method="bsp", draft_tokens=0, max_new_tokens=5)
    assert [len(ids) for ids in run.outputs] == [5, 5]
