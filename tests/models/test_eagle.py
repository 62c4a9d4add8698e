"""A draft that reads the target's states: what it is handed does not depend on the layout."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from engine.config.methods import CORRECT_METHODS
from engine.config.settings import Settings
from engine.evaluation.oracle import Oracle
from engine.models.causal_lm import LanguageModel
from engine.models.eagle import EagleModel, EagleReader, Features, Fusion
from engine.pairs.load import Pair
from engine.records.schema import Prompt, RoundRecord, Summary
from engine.runs.run import Run
from tests.tiny import llama, prompts_of, tiny_pair

VOCABULARY = 6
WIDTH = 32
PROMPTS = prompts_of([[3, 4, 5, 3, 5, 4, 3], [5], [4, 4, 3, 5], [3, 5, 5, 4, 3, 3, 4, 5, 4, 3]])
SPECULATIVE = [method for method in CORRECT_METHODS if method != "autoregressive"]


@cache
def eagle_pair() -> Pair:
    """So few tokens that a draft of random weights is right now and then."""
    pair = tiny_pair(vocabulary=VOCABULARY, layers=3, eos_ids=(2,))
    torch.manual_seed(5)
    features = Features(WIDTH, (0, 1)).double()
    fusion = Fusion(WIDTH).double()
    layers = llama(VOCABULARY, 2, 128, 0.3).double().eval()
    target = LanguageModel(deepcopy(pair.target.hf), eos_ids=(2,), name="target")
    target.reader = EagleReader(target.hf, features, target.layers)
    draft = EagleModel(layers, fusion, eos_ids=(2,), name="features")
    return replace(pair, target=target, draft=draft)


@cache
def plain() -> tuple[Any, Any]:
    """Target and draft with the attention of transformers and no cache of ours."""
    pair = eagle_pair()
    models = deepcopy(pair.target.hf.model), deepcopy(pair.draft.hf)  # type: ignore[union-attr]
    for model in models:
        model.config._attn_implementation = "eager"
    return models


@torch.inference_mode()
def alone(tokens: list[int], count: int) -> list[int]:
    """The draft's greedy draft tokens after `tokens`, computed afresh and without any cache.

    The target's vectors where it has read the token, the draft's own states from there on.
    """
    pair = eagle_pair()
    assert isinstance(pair.draft, EagleModel)
    assert isinstance(pair.target.reader, EagleReader)
    target, draft = plain()
    features, fusion = pair.target.reader._features, pair.draft._fusion
    read = target(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    layers = [read.hidden_states[layer + 1] for layer in features.layers]
    known = list(features([read.last_hidden_state, *layers])[0])[: len(tokens) - 1]
    text, own = list(tokens), []
    for _ in range(count):
        before = torch.stack([torch.zeros(WIDTH).double(), *known, *own])[None]
        embedded = draft.get_input_embeddings()(torch.tensor([text]))
        states = draft.model(
            inputs_embeds=fusion(embedded, before), use_cache=False
        ).last_hidden_state
        own.append(fusion.carry(states[0, -1]))
        text.append(int(draft.lm_head(states[0, -1]).argmax()))
    return text[len(tokens) :]


def run(
    method: str, prompts: tuple[Prompt, ...], **settings: object
) -> tuple[list[RoundRecord], Summary]:
    chosen = {"batch_size": 3, "draft_tokens": 3, "max_new_tokens": 16, **settings}
    *records, summary = Run(eagle_pair(), Settings(method=method, **chosen), prompts).records()  # type: ignore[arg-type]
    assert isinstance(summary, Summary)
    return [record for record in records if isinstance(record, RoundRecord)], summary


@pytest.mark.parametrize("method", SPECULATIVE)
def test_each_draft_token_is_what_the_draft_says_of_the_row_alone(method: str) -> None:
    rounds, summary = run(method, PROMPTS)
    texts = {prompt.index: list(prompt.ids) for prompt in PROMPTS}
    accepted = set()
    for record in rounds:
        for row in record.rows:
            text = texts[row.row]
            assert list(row.draft_token_ids) == alone(text, len(row.draft_token_ids))
            accepted.add(row.accepted)
            text.extend(row.committed)
    assert {row.index: [*row.prompt_ids, *row.output_ids] for row in summary.rows} == texts
    assert len(accepted) > 1 or method == "rollback", (
        "the batch never became ragged: the test shows nothing"
    )


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("method", SPECULATIVE)
def test_outputs_are_the_targets_own(method: str, strict: bool) -> None:
    rounds, summary = run(method, PROMPTS, strict=strict, audit=True)
    answers = Oracle(eagle_pair()).answers(PROMPTS, Settings(max_new_tokens=16))
    assert [r.output_ids for r in summary.rows] == [a.output_ids for a in answers]
    assert not [violation for record in rounds for violation in record.violations]


@pytest.mark.parametrize("method", ["bsp", "dsd"])
def test_the_broken_baselines_run_with_it(method: str) -> None:
    rounds, _ = run(method, PROMPTS)
    assert any(row.draft_token_ids for record in rounds for row in record.rows)
