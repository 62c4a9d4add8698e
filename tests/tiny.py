"""Tiny random pairs in float64: exact to 1e-15, the right size for tests of logic."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from engine.config.settings import Settings
from engine.models.causal_lm import LanguageModel
from engine.models.lease import Lease
from engine.pairs.load import Pair
from engine.records.row import RowRound
from engine.records.schema import PairInfo, Prompt, RoundRecord, Summary
from engine.records.violation import Violation
from engine.runs.run import Run
from engine.text.tokenizer import Tokenizer

VOCABULARY = 40
EOS = 2

torch.set_num_threads(1)  # more only get in each other's way at this size


LEASE = Lease()
"""Of all tiny pairs: some share a model, and a test's thread may outlive it."""


def llama(vocabulary: int, layers: int, context: int, spread: float) -> Any:
    """Rotary positions, grouped K/V heads."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=context,
            initializer_range=spread,
        )
    )


def gpt2(vocabulary: int, layers: int, context: int, spread: float) -> Any:
    """Learned positions."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary,
            n_embd=32,
            n_layer=layers,
            n_head=4,
            n_positions=context,
            initializer_range=spread,
        )
    )


KINDS = {"llama": llama, "gpt2": gpt2}


def tiny_pair(
    kind: str = "llama",
    *,
    vocabulary: int = VOCABULARY,
    draft_vocabulary: int | None = None,
    layers: int = 2,
    context: int = 128,
    eos_ids: tuple[int, ...] = (EOS,),
    pad_id: int | None = None,
    noise: float = 0.03,
    spread: float = 0.3,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Pair:
    """A target and a draft that is the target with noise on its weights (0: the same model).

    The pad id is an eos id unless it is given, as with many real models.
    """
    target = _model(kind, vocabulary, layers, context, spread, seed, 0.0, vocabulary, dtype)
    rows = draft_vocabulary or vocabulary
    draft = _model(kind, vocabulary, layers, context, spread, seed, noise, rows, dtype)
    tokenizer = Tokenizer(
        None, name="tiny", eos_ids=eos_ids, pad_id=pad_id, vocabulary=min(vocabulary, rows)
    )
    info = PairInfo(
        name=f"tiny {kind}",
        target="tiny target",
        draft="tiny draft",
        vocabulary=vocabulary,
        context=context,
        eos_ids=eos_ids,
        pad_id=tokenizer.pad_id,
    )
    return Pair(
        info=info,
        target=LanguageModel(target, eos_ids=eos_ids, name="tiny target"),
        draft=LanguageModel(draft, eos_ids=eos_ids, name="tiny draft"),
        tokenizer=tokenizer,
        lease=LEASE,
    )


@lru_cache(maxsize=32)
def _model(
    kind: str,
    vocabulary: int,
    layers: int,
    context: int,
    spread: float,
    seed: int,
    noise: float,
    rows: int,
    dtype: torch.dtype,
) -> Any:
    """A seeded model; `rows` more (or fewer) than `vocabulary` pads (or cuts) the head."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = KINDS[kind](vocabulary, layers, context, spread).double()
        torch.manual_seed(seed + 1)
        with torch.no_grad():
            for weight in model.parameters():
                weight += noise * torch.randn_like(weight)
        if rows != vocabulary:
            model.resize_token_embeddings(rows, mean_resizing=False)
    return model.to(dtype).eval()


def prompts_of(ids: Sequence[Sequence[int]]) -> tuple[Prompt, ...]:
    return tuple(Prompt(index=i, ids=tuple(row)) for i, row in enumerate(ids))


def mixed_prompts(count: int, *, seed: int = 0, longest: int = 20) -> tuple[Prompt, ...]:
    """Prompts of unequal length, from one token up."""
    chance = random.Random(seed)
    return prompts_of(
        [
            [chance.randrange(3, VOCABULARY) for _ in range(chance.randrange(1, longest))]
            for _ in range(count)
        ]
    )


class Finished:
    """A run that has come to its end, with what a test asks of it."""

    def __init__(self, pair: Pair, settings: Settings, prompts: Sequence[Prompt]) -> None:
        records = list(Run(pair, settings, prompts).records())
        self.rounds = [record for record in records if isinstance(record, RoundRecord)]
        last = records[-1]
        assert isinstance(last, Summary)
        self.summary = last

    @property
    def outputs(self) -> list[tuple[int, ...]]:
        return [row.output_ids for row in self.summary.rows]

    @property
    def reasons(self) -> list[str]:
        return [row.finish_reason for row in self.summary.rows]

    @property
    def violations(self) -> list[tuple[int, Violation]]:
        return [(record.round, broken) for record in self.rounds for broken in record.violations]

    def of_row(self, index: int) -> list[RowRound]:
        """One row's rounds, in order."""
        return [row for record in self.rounds for row in record.rows if row.row == index]


def finished(pair: Pair, prompts: Sequence[Prompt], **settings: Any) -> Finished:
    """Run to the end with these settings (method, batch_size, draft_tokens, …)."""
    return Finished(pair, Settings(**settings), prompts)


@contextmanager
def broken_forward(model: LanguageModel, damage: Any) -> Iterator[None]:
    """Within the block, `damage(call number, feed, logits)` replaces the model's logits."""
    original = model.forward
    calls = 0

    def forward(feed: Any, store: Any, *, keep: int = 0) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return damage(calls, feed, original(feed, store, keep=keep))

    model.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        del model.forward


@contextmanager
def broken_embedding(model: LanguageModel, token: int) -> Iterator[None]:
    """Within the block, whoever reads `token` gets NaN."""
    weight = model.hf.get_input_embeddings().weight
    kept = weight[token].detach().clone()
    try:
        with torch.no_grad():
            weight[token] = float("nan")
        yield
    finally:
        with torch.no_grad():
            weight[token] = kept
