"""What broke other engines, as tests of every correct method: rows, limits, inputs.

The numbers are those of the list of cases. Elsewhere: 15 in test_sampling.py, 20 in
test_pairs.py (`test_different_tokenizers_are_refused_with_the_first_token`), and how the
command line reports 30 and 32 in test_cli.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

from engine.config.errors import UserError
from engine.config.settings import Sampling, Settings
from engine.models.causal_lm import LanguageModel
from engine.models.device_memory import require_memory
from engine.models.memory_estimate import demand_of, need_of, sizes_of
from engine.text.prompts import PromptEntry, encode_prompts, read_prompts
from engine.text.tokenizer import Tokenizer
from tests.cases import (
    PROMPTS,
    assert_equal_solo,
    every_method,
    every_speculative_method,
    run,
    settings_of,
    solo,
)
from tests.tiny import Finished, broken_embedding, broken_forward, prompts_of, tiny_pair

WARM = Sampling(temperature=0.8, seed=7)


# ---- sampling -------------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-42])
def test_case_16_next_to_no_temperature_is_greedy_decoding(method: str, temperature: float) -> None:
    """One temperature holds for all rows of a run; the smallest one divides nothing by zero."""
    pair = tiny_pair()
    cold = run(pair, method, sampling=Sampling(temperature=temperature))
    assert cold.outputs == solo(pair)


@every_method
def test_case_17_the_same_seed_gives_the_same_tokens(method: str) -> None:
    pair = tiny_pair()
    first = run(pair, method, sampling=WARM)
    again = run(pair, method, sampling=WARM)
    other = run(pair, method, sampling=replace_seed(WARM, 8))
    assert first.outputs == again.outputs
    assert first.outputs != other.outputs


@every_method
def test_case_17_a_neighbour_never_changes_what_a_row_draws(method: str) -> None:
    pair = tiny_pair()
    together = run(pair, method, sampling=WARM, batch_size=6)
    for prompt in PROMPTS[:3]:
        # rollback cuts a row to its neighbours' acceptance, which changes its K
        if method != "rollback":
            alone = Finished(pair, settings_of(method, sampling=WARM), (prompt,))
            assert alone.outputs == [together.outputs[prompt.index]]


def replace_seed(sampling: Sampling, seed: int) -> Sampling:
    return Sampling(temperature=sampling.temperature, seed=seed)


@every_method
def test_case_18_duplicate_prompts(method: str) -> None:
    pair = tiny_pair()
    twice = prompts_of([PROMPTS[0].ids] * 4)
    assert len(set(run(pair, method, twice).outputs)) == 1
    assert len(set(run(pair, method, twice, sampling=WARM).outputs)) == 4


# ---- models ---------------------------------------------------------------------------


@every_speculative_method
@pytest.mark.parametrize(("target", "draft"), [(40, 48), (48, 40)])
@pytest.mark.parametrize("sampling", [Sampling(), WARM])
def test_case_19_vocabularies_of_different_size(
    method: str, target: int, draft: int, sampling: Sampling
) -> None:
    pair = tiny_pair(vocabulary=target, draft_vocabulary=draft)
    done = run(pair, method, sampling=sampling)
    assert set(done.reasons) <= {"eos", "length"}
    assert any(row.accepted for record in done.rounds for row in record.rows)
    if sampling.greedy:
        assert done.outputs == solo(pair)


def small(kind: str, **config: Any) -> Any:
    """A model of another family, with random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {
        "vocab_size": 40,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.3,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        settings = AutoConfig.for_model(kind, **{**sizes, **config})
        return AutoModelForCausalLM.from_config(settings).double().eval()


@every_method
def test_case_21_a_sliding_window_is_crossed_in_the_middle_of_a_draft(method: str) -> None:
    hf = small("mistral", sliding_window=8, max_position_embeddings=64)
    model = LanguageModel(hf, eos_ids=(), name="sliding")
    pair = replace(tiny_pair(eos_ids=()), target=model, draft=model)
    prompts = prompts_of([(5, 6, 7, 8, 9, 10), (4, 3, 5)])
    done = run(pair, method, prompts, max_new_tokens=16)
    assert done.violations == []
    if method != "autoregressive":
        assert any(row.before < 8 < row.before + row.accepted for row in done.of_row(0))
    reference = small("mistral", sliding_window=8, max_position_embeddings=64)
    for prompt, output in zip(prompts, done.outputs, strict=True):
        ids = torch.tensor([prompt.ids])
        greedy = reference.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=16,
            do_sample=False,
            eos_token_id=None,
        )
        assert output == tuple(greedy[0, len(prompt.ids) :].tolist())


def test_case_22_a_cache_that_cannot_be_rolled_back_is_refused() -> None:
    with torch.random.fork_rng(devices=[]):
        hf = MambaForCausalLM(
            MambaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, state_size=4)
        )
    with pytest.raises(UserError, match=r"my model: its state \(.*\) cannot be rolled back"):
        LanguageModel(hf, name="my model")


@every_method
def test_case_23_past_the_context_a_row_ends_and_the_others_go_on(method: str) -> None:
    pair = tiny_pair("gpt2", context=24, eos_ids=())
    prompts = prompts_of([range(3, 23), (5, 6), range(10, 33), (9, 3, 8), (4,)])
    done = assert_equal_solo(pair, method, prompts)
    assert done.reasons == ["context", "length", "context", "length", "length"]
    assert [len(output) for output in done.outputs] == [4, 12, 1, 12, 12]


# ---- rows that cannot run ---------------------------------------------------------------


@every_method
def test_case_24_one_overlong_prompt_among_others(method: str) -> None:
    pair = tiny_pair(context=32)
    entries = [PromptEntry(ids=tuple(ids)) for ids in ((5, 6), [7] * 33, (8, 9, 10), (4,))]
    prompts = encode_prompts(entries, pair.tokenizer, None, pair.info.context)
    done = assert_equal_solo(pair, method, prompts)
    assert [row.index for row in done.summary.rows] == [0, 1, 2, 3]
    assert done.outputs[1] == ()
    assert done.reasons[1] == "error"
    errors = [row.error for row in done.summary.rows]
    assert errors[1] is not None
    assert "33 tokens" in errors[1]
    assert errors[0] is errors[2] is errors[3] is None


@every_method
def test_case_25_an_empty_prompt(method: str) -> None:
    pair = tiny_pair()
    entries = [PromptEntry(ids=()), PromptEntry(ids=(5, 6, 7))]
    refused = encode_prompts(entries, pair.tokenizer, None, pair.info.context)
    done = assert_equal_solo(pair, method, refused)
    assert done.reasons[0] == "error"
    assert "empty prompt" in str(done.summary.rows[0].error)

    begins = Tokenizer(None, name="tiny", eos_ids=(2,), bos_id=1, vocabulary=40)
    started = encode_prompts(entries, begins, None, pair.info.context)
    assert started[0].ids == (1,)
    done = assert_equal_solo(replace(pair, tokenizer=begins), method, started)
    assert len(done.outputs[0]) > 0


@every_method
def test_case_26_no_query_is_masked_from_everything(method: str) -> None:
    """A softmax over nothing is NaN; padding cells see at least themselves."""
    pair = tiny_pair()
    seen = []

    def watch(call: int, feed: Any, logits: torch.Tensor) -> torch.Tensor:
        seen.append(bool(feed.mask.any(-1).all()) and bool(logits.isfinite().all()))
        return logits

    prompts = prompts_of([(5,), range(3, 38), (6, 7)])
    with broken_forward(pair.target, watch):
        done = run(pair, method, prompts)
    assert all(seen)
    assert set(done.reasons) <= {"eos", "length"}


@every_method
def test_case_27_one_row_and_fewer_prompts_than_places(method: str) -> None:
    pair = tiny_pair()
    assert_equal_solo(pair, method, batch_size=1)
    assert_equal_solo(pair, method, PROMPTS[:2], batch_size=8)
    assert run(pair, method, ()).outputs == []


@every_method
@pytest.mark.parametrize("when", ["in the prompt", "later"])
def test_case_28_non_finite_logits_end_their_row_only(method: str, when: str) -> None:
    """One token's embedding is broken: whoever reads it gets NaN, in its cache as well."""
    pair = tiny_pair(seed=50)
    ids = [prompt.ids for prompt in PROMPTS]
    answers = solo(pair)
    others = {token for i in range(len(ids)) if i != 1 for token in (*ids[i], *answers[i])}
    if when == "later":
        broken = next(token for token in answers[1][2:] if token not in (*others, *ids[1]))
        kept = answers[1].index(broken) + 1
    else:
        broken = next(token for token in range(3, 40) if token not in (*others, *answers[1]))
        ids[1] = (*ids[1], broken)
        kept = 0

    def never(call: int, feed: Any, logits: torch.Tensor) -> torch.Tensor:
        """No other row may read it as a draft token."""
        logits[..., broken] = float("-inf")
        return logits

    with broken_embedding(pair.target, broken), broken_forward(pair.draft, never):
        done = run(pair, method, prompts_of(ids))
    for index, row in enumerate(done.summary.rows):
        if index != 1:
            assert row.output_ids == answers[index]
            assert row.error is None
    row = done.summary.rows[1]
    assert row.output_ids == answers[1][:kept]
    assert row.finish_reason == "error"
    rounds = [record.round for record in done.rounds if 1 in [row.row for row in record.rows]]
    assert f"round {rounds[-1]}, row 1;" in str(row.error)


@every_speculative_method
def test_case_28_a_broken_draft_costs_acceptance_and_nothing_else(method: str) -> None:
    pair = tiny_pair()
    assert pair.draft is not None

    def nothing(call: int, feed: Any, logits: torch.Tensor) -> torch.Tensor:
        return torch.full_like(logits, float("nan"))

    with broken_forward(pair.draft, nothing):
        done = run(pair, method)
    assert done.outputs == solo(pair)


def test_case_29_a_run_that_cannot_fit_is_refused_before_it_begins() -> None:
    pair = tiny_pair()
    assert pair.draft is not None
    settings = Settings(method="slotspec", batch_size=8, draft_tokens=3, max_new_tokens=90)
    lengths = [10] * 8
    demand = demand_of(settings, lengths, pair.target.context)
    need = need_of(sizes_of(pair.target), demand)
    per_token = 2 * 2 * 2 * 8 * 8  # K and V, layers, heads, head size, bytes
    assert need.kv == 8 * (100 + 4 + 1) * per_token
    assert need.logits == 2 * 8 * 4 * 40 * 8
    total = (need + need_of(sizes_of(pair.draft), demand, drafts=True)).total
    require_memory(pair.target, pair.draft, [settings], lengths, free=total)
    with pytest.raises(UserError, match=r"this run needs .* lower --batch-size to 7"):
        require_memory(pair.target, pair.draft, [settings], lengths, free=total - 1)


@every_method
def test_case_29_every_run_is_checked(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.models.device_memory.free_bytes", lambda device: 1000)
    with pytest.raises(UserError, match=r"0\.000 GB are free"):
        run(tiny_pair(), method)


# ---- wrong usage ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [{"device": "tpu"}, {"dtype": "float12"}, {"method": "magic"}, {"batch_size": 0}],
)
def test_case_30_unknown_names_are_refused_in_one_line(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        Settings(**wrong).check()
    assert "\n" not in str(caught.value)
    assert str(next(iter(wrong.values()))) in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
@every_speculative_method
def test_case_31_a_draft_on_another_device(method: str) -> None:
    pair = tiny_pair(seed=60)
    expected = solo(pair)
    assert pair.draft is not None
    pair.target.hf.to("cuda")
    try:
        assert run(pair, method).outputs == expected
    finally:
        pair.target.hf.to("cpu")


def test_case_32_a_prompt_file_with_a_bad_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "good"}\n{"prompt": 3}\n')
    with pytest.raises(UserError, match="line 2: 'prompt' must be a text") as caught:
        read_prompts(file=file)
    assert caught.value.exit_code == 2
