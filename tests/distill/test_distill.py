"""Distillation on a tiny random target: the parts, a run that learns, and one that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from engine.config.errors import UserError
from engine.config.replace_file import load_checkpoint
from engine.distill.generate import Request, generate
from engine.distill.heal import bridge, gaps
from engine.distill.held_out import all_prompts
from engine.distill.questions import questions
from engine.distill.run import DistillSettings, Stage, distill_model
from engine.distill.tokens import TokenData, load_tokens, save_tokens
from engine.distill.validate import rounds
from engine.models.cut_draft import build_draft, hot_vocabulary, parse_layers
from engine.models.draft_format import export_full, load_compact, save_compact
from tests.places import ROOT

VOCAB, EOS = 48, 1


def tiny_target() -> LlamaForCausalLM:
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        initializer_range=0.2,
        eos_token_id=EOS,
        max_position_embeddings=128,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def tiny_data(target: LlamaForCausalLM, rows: int = 400) -> TokenData:
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(2, VOCAB, (rows, 4), generator=generator).tolist()
    requests = [Request(prompt, 20, 0.5 * (i % 2)) for i, prompt in enumerate(prompts)]
    found = dict(generate(target, requests, {EOS}, slots=32))
    return TokenData.of([prompts[i] + found[i] for i in range(rows)], [4] * rows)


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return tiny_target()


@pytest.fixture(scope="module")
def data_file(target: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "tokens.safetensors"
    save_tokens(tiny_data(target), path)
    return path


def settings(out: Path, data: Path, **changes: object) -> DistillSettings:
    given = {
        "target": "tiny",
        "layers": "0,1,5",
        "hours": 1.0,
        "out": out,
        "data": ((data, 1.0),),
        "hot_vocab": 40,
        "batch": 256,
        "learning_rate": 3e-3,
        "validate_every": 1000,
        **changes,
    }
    return DistillSettings(**given)  # type: ignore[arg-type]


# --- the parts -------------------------------------------------------------------------------


def test_rounds_walks_the_answer_as_greedy_speculation_does() -> None:
    hits = [True, True, False, False, True, True, True, True]
    # K = 2: (2 accepted, bonus), (0, bonus), (2, bonus), then one token is left
    assert rounds([hits], 2) == (4, 4)
    # K = 5: nothing is drafted for the last token that may still be committed
    assert rounds([hits], 5) == (5, 3)
    assert rounds([[False] * 4], 5) == (0, 4)
    assert rounds([[]], 5) == (0, 0)


def test_layers_are_a_number_or_a_list() -> None:
    assert parse_layers("9", 30) == [0, 1, 2, 3, 4, 5, 27, 28, 29]
    assert parse_layers("0-2,24-29", 30) == [0, 1, 2, 24, 25, 26, 27, 28, 29]
    assert parse_layers("1", 4) == [0]
    for wrong in ("0", "31", "3,1", "0-30", "x", "1,,2", ""):
        with pytest.raises(UserError, match="--layers"):
            parse_layers(wrong, 30)


def test_hot_vocabulary_is_frequent_sorted_and_holds_the_ends() -> None:
    counts = torch.tensor([0, 9, 0, 5, 7, 1])
    assert hot_vocabulary(counts, 3, {0}).tolist() == [0, 1, 4]


def test_token_data_survives_the_disk_and_nonsense_is_refused(tmp_path: Path) -> None:
    data = TokenData.of([[3, 4, 5, 6], [7, 8]], [-1, 1])
    save_tokens(data, tmp_path / "a.safetensors")
    again = load_tokens(tmp_path / "a.safetensors", VOCAB)
    assert [again.sequence(i).tolist() for i in range(2)] == [[3, 4, 5, 6], [7, 8]]
    assert again.find_answers([4, 5]).answer_start.tolist() == [3, 1]
    with pytest.raises(UserError, match="vocabulary"):
        load_tokens(tmp_path / "a.safetensors", 8)
    (tmp_path / "b").write_bytes(b"no tensors")
    for name in ("b", "missing"):
        with pytest.raises(UserError):
            load_tokens(tmp_path / name, VOCAB)


def test_questions_differ_repeat_by_seed_and_spare_the_held_out_prompts() -> None:
    asked = questions(400, seed=1)
    assert len(set(asked)) == 400
    assert asked == questions(400, seed=1) != questions(400, seed=2)
    assert not {prompt for _, prompt in all_prompts()} & set(asked)
    assert not [text for text in asked if "{" in text or "}" in text]


def test_written_answers_equal_each_prompt_alone(target: LlamaForCausalLM) -> None:
    model = tiny_target().double()
    prompts = [[5, 6], [7], [8, 9, 10, 11, 12], [13, 14, 2], [3, 3, 3]]
    found = dict(generate(model, [Request(p, 9) for p in prompts], {EOS}, slots=2))
    for i, prompt in enumerate(prompts):
        alone: list[int] = []
        while len(alone) < 9 and EOS not in alone:
            logits = model(torch.tensor([prompt + alone])).logits[0, -1]
            alone.append(int(logits.argmax()))
        assert found[i] == alone


def test_another_architecture_is_refused() -> None:
    config = GPT2Config(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2)
    with pytest.raises(UserError, match="Llama-like"):
        build_draft(GPT2LMHeadModel(config), [0], torch.arange(4))


def test_the_bridge_brings_the_draft_closer(target: LlamaForCausalLM) -> None:
    data = tiny_data(target, 60)
    layers = [0, 1, 5]
    hot = torch.arange(VOCAB)
    plain, healed = (build_draft(target, layers, hot) for _ in range(2))
    assert gaps(layers) == [1]
    assert bridge(target, healed, layers, data, tokens=1000)[0] > 0.1
    ids = data.sequence(0)[None]
    truth = target(ids).logits

    def distance(draft: LlamaForCausalLM) -> float:
        return float((draft(ids).logits - truth).square().mean().detach())

    assert distance(healed) < distance(plain)


@pytest.mark.parametrize("int8", [True, False])
def test_a_compact_draft_comes_back(target: LlamaForCausalLM, tmp_path: Path, int8: bool) -> None:
    hot = torch.arange(0, VOCAB, 2)
    draft = build_draft(target, [0, 2, 5], hot)
    save_compact(tmp_path, draft, [0, 2, 5], hot, int8=int8, figures={"note": "x"})
    again, ids = load_compact(tmp_path, target)
    assert ids.tolist() == hot.tolist()
    assert again.config.num_hidden_layers == 3
    assert again.model.embed_tokens.weight is target.model.embed_tokens.weight
    assert again.lm_head.weight.shape == (24, 32)
    x = torch.randint(0, VOCAB, (2, 9))
    torch.testing.assert_close(again(x).logits, draft(x).logits, atol=0.2, rtol=0.05)
    assert json.loads((tmp_path / "draft.json").read_text())["schema"] == "batchspec/draft/1"
    half, _ = load_compact(tmp_path, target, torch.bfloat16)
    assert half(x).logits.dtype == torch.bfloat16
    other = LlamaForCausalLM(LlamaConfig(**{**target.config.to_dict(), "vocab_size": 50}))
    with pytest.raises(UserError, match="another target"):
        load_compact(tmp_path, other)


def test_a_full_export_is_an_ordinary_model(target: LlamaForCausalLM, tmp_path: Path) -> None:
    hot = torch.arange(0, VOCAB, 2)
    draft = build_draft(target, [0, 5], hot)
    export_full(target, draft, hot, tmp_path)
    full = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    x = torch.randint(0, VOCAB, (2, 9))
    torch.testing.assert_close(full(x).logits[..., hot], draft(x).logits)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"]
    assert config["tie_word_embeddings"] is True


# --- runs ------------------------------------------------------------------------------------


def test_agreement_rises_and_a_run_goes_on_where_it_stopped(
    target: LlamaForCausalLM, data_file: Path, tmp_path: Path
) -> None:
    found: dict[str, float] = {}
    steps: list[int] = []

    def run(name: str, out: Path, stop_at: int | None = None, **changes: object) -> None:
        def tell(stage: Stage) -> None:
            if stage.training is not None:
                steps.append(stage.training.step)
            if stage.name == "done":
                found[name] = stage.figures["validation"]["held_out"]["agreement"]

        def stop() -> bool:
            return stop_at is not None and bool(steps) and steps[-1] >= stop_at

        distill_model(target, None, settings(out, data_file, **changes), tell, stop)

    run("start", tmp_path / "start", max_steps=1, learning_rate=1e-9)
    steps.clear()
    run("whole", tmp_path / "whole", max_steps=120)
    assert steps[-1] == 120
    assert found["whole"] > found["start"] + 0.05

    steps.clear()
    run("half", tmp_path / "half", stop_at=50, max_steps=120)
    assert steps[-1] == 50
    run("resumed", tmp_path / "half", resume=True, max_steps=120)
    assert steps[50] == 51
    assert steps[-1] == 120
    whole, resumed = (load_checkpoint(tmp_path / name / "work") for name in ("whole", "half"))
    assert whole is not None
    assert resumed is not None
    for name, weights in whole["masters"].items():  # the very same run, stopped or not
        assert torch.equal(weights, resumed["masters"][name])

    draft, hot = load_compact(tmp_path / "whole", target)
    assert len(hot) == 40
    assert draft.config.num_hidden_layers == 3
    with pytest.raises(UserError, match="other layers"):
        run("other", tmp_path / "half", resume=True, layers="0,5")


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.distill.test_distill import settings, tiny_target
from engine.distill.run import distill_model

def tell(stage):
    if stage.training is not None:
        print(stage.training.step, stage.training.elapsed, flush=True)

distill_model(tiny_target(), None, settings(
    Path({out!r}), Path({data!r}), checkpoint_seconds=0.3), tell)
"""


def test_a_killed_run_loses_no_more_than_since_its_last_checkpoint(
    target: LlamaForCausalLM, data_file: Path, tmp_path: Path
) -> None:
    root = str(ROOT)
    code = KILLED.format(root=root, out=str(tmp_path), data=str(data_file))
    seen: list[tuple[int, float]] = []
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            step, elapsed = line.split()
            seen.append((int(step), float(elapsed)))
            if seen[-1][1] > 1.0 and (tmp_path / "work" / "checkpoint.pt").exists():
                os.kill(process.pid, signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    saved = load_checkpoint(tmp_path / "work")
    assert saved is not None
    slack = 0.5  # a step and the writing itself
    assert saved["elapsed"] > seen[-1][1] - 0.3 - slack

    first: list[int] = []
    began = time.monotonic()

    def tell(stage: Stage) -> None:
        if stage.training is not None:
            first.append(stage.training.step)

    changes = settings(tmp_path, data_file, resume=True)
    distill_model(target, None, changes, tell, lambda: len(first) >= 3)
    assert first[0] == saved["step"] + 1
    assert (tmp_path / "draft.safetensors").exists()
    assert time.monotonic() - began < 30


def test_an_earlier_run_is_not_overwritten(tmp_path: Path) -> None:
    from engine.distill.run import distill

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "checkpoint.pt").write_bytes(b"")
    with pytest.raises(UserError, match="--resume"):
        distill(settings(tmp_path, tmp_path / "none"))


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from tui.cli.commands.distill import distill as command
    from tui.cli.commands.distill import parse_data

    base = [
        "--target",
        str(tmp_path),
        "--layers",
        "2",
        "--hours",
        "1",
        "--out",
        str(tmp_path / "o"),
    ]
    result = CliRunner().invoke(command, [*base, "--data", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "no such file" in result.output
    file = tmp_path / "x=y"
    file.touch()
    assert parse_data((f"{file}=0.5", str(file))) == ((file, 0.5), (file, 1.0))
    result = CliRunner().invoke(command, [*base, "--quiet"])
    assert isinstance(result.exception, UserError)
