"""The paper's pairs by their names, with stand-ins in the hub's cache: loaded and run as the
published models would be, without a screen and with one."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from engine.config.errors import UserError
from engine.config.settings import Settings
from engine.evaluation.oracle import Oracle
from engine.pairs.components import wrap
from engine.pairs.load import Pair, load_pair
from engine.pairs.registry import PairRequest, resolve, user_file
from engine.records.schema import RoundRecord, Summary
from engine.runs.run import Run
from engine.runs.worker import State
from engine.text.prompts import PromptEntry, encode_prompts
from tests.standins import GLM4_EOS, PAIRS, lay_out
from tests.tui_app import ready, screen_text, until
from tui.app.app import BatchspecApp
from tui.session.control import Control
from tui.session.live import LiveSource
from tui.session.request import AppRequest

VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions. USER: {} ASSISTANT:"
)
ENTRIES = tuple(PromptEntry(text=text) for text in ("What is an echo?", "Hello", "Count to ten."))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hub")
    lay_out(place, *PAIRS)
    return place


@pytest.fixture(autouse=True)
def offline(cache: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """The cache holds the stand-ins, and nobody answers on the network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("engine.pairs.hub._ask", lambda name, revision: pytest.fail("asked"))


@lru_cache(maxsize=8)
def loaded(name: str, **request: Any) -> Pair:
    return load_pair(PairRequest(name=name, **request), device="cpu", dtype="float32")


class TestLoading:
    @pytest.mark.parametrize("name", PAIRS)
    def test_the_pair_runs_and_equals_the_oracle(self, name: str) -> None:
        pair = loaded(name)
        prompts = encode_prompts(ENTRIES, pair.tokenizer, None, pair.info.context)
        settings = Settings(method="exspec", max_new_tokens=8, draft_tokens=3, batch_size=2)
        *records, last = Run(pair, settings, prompts).records()
        assert isinstance(last, Summary)
        answers = Oracle(pair).answers(prompts, settings)
        assert [r.output_ids for r in last.rows] == [answer.output_ids for answer in answers]
        assert pair.info.draft_layers >= 1
        drafted = {
            token
            for record in records
            if isinstance(record, RoundRecord)
            for row in record.rows
            for token in row.draft_token_ids
        }
        assert drafted
        never = set() if pair.never is None else set(pair.never.tolist())
        assert not drafted & never

    def test_what_only_the_drafts_tokenizer_knows_is_never_drafted(self) -> None:
        pair = loaded("glm4")
        assert pair.never is not None
        assert pair.never.tolist() == list(range(151_343, 151_354))
        assert loaded("qwen3").never is None
        assert loaded("vicuna").never is None

    def test_every_end_of_the_generation_config_counts(self) -> None:
        assert loaded("glm4").info.eos_ids == tuple(GLM4_EOS)
        assert loaded("qwen3").info.eos_ids == (151_645, 151_643)

    def test_architectures_are_those_of_the_published_models(self) -> None:
        qwen = loaded("qwen3")
        assert qwen.draft is not None
        tied = [
            model.hf.lm_head.weight is model.hf.model.embed_tokens.weight
            for model in (qwen.target, qwen.draft)
        ]
        assert tied == [False, True]
        assert hasattr(qwen.target.hf.model.layers[0].self_attn, "q_norm")
        assert qwen.target.vocabulary == 151_936
        assert qwen.tokenizer.vocabulary == 151_669
        glm = loaded("glm4").target
        assert glm.hf.model.rotary_emb.inv_freq.numel() == glm.head_dim // 4
        assert glm.vocabulary == 151_552
        assert loaded("vicuna").target.vocabulary == 32_000


class TestChat:
    def ids(self, pair: Pair, text: str) -> list[int]:
        return pair.tokenizer.encode(text, chat=True)

    def test_vicuna_is_spoken_to_in_its_format(self) -> None:
        pair = loaded("vicuna")
        ids = self.ids(pair, "Hello there")
        assert pair.tokenizer.decode(ids) == VICUNA.format("Hello there")
        assert ids == pair.tokenizer.encode(VICUNA.format("Hello there"))
        assert (ids[0], ids.count(1)) == (1, 1)

    def test_qwen3_does_not_think_unless_it_is_told_to(self) -> None:
        silent = loaded("qwen3")
        hf = silent.tokenizer.hf
        spec = resolve(PairRequest(name="qwen3", thinking=True))
        thinking = wrap(spec, hf, silent.target.hf.config, ())
        said = hf.decode(self.ids(silent, "Hi"))
        asked = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        assert said == asked + "<think>\n\n</think>\n\n"
        assert hf.decode(thinking.encode("Hi", chat=True)) == asked

    def test_glm4_begins_with_its_prefix_once(self) -> None:
        pair = loaded("glm4")
        ids = self.ids(pair, "Hi")
        hf = pair.tokenizer.hf
        assert hf.decode(ids) == "[gMASK]<sop><|user|>\nHi<|assistant|>\n"
        assert ids[:2] == hf.encode("Hi")[:2] == [151_331, 151_333]
        assert ids.count(151_331) == 1

    @pytest.mark.parametrize("name", ["vicuna", "glm4"])
    def test_thinking_is_refused_where_there_is_none(self, name: str) -> None:
        pair = loaded(name)
        with pytest.raises(UserError, match="--thinking"):
            wrap(
                resolve(PairRequest(name=name, thinking=True)),
                pair.tokenizer.hf,
                pair.target.hf.config,
                (),
            )

    def test_a_format_of_the_users_own(self) -> None:
        user_file().parent.mkdir(parents=True)
        user_file().write_text(
            '[pairs.mine]\ntarget = "lmsys/vicuna-7b-v1.3"\ndraft = "lookup"\n'
            'chat = "Q: {prompt} A:"\n'
        )
        pair = loaded("mine")
        assert pair.tokenizer.decode(self.ids(pair, "Hi")) == "Q: Hi A:"

    def test_a_format_that_is_none_is_refused(self) -> None:
        user_file().parent.mkdir(parents=True)
        user_file().write_text('[pairs.mine]\ntarget = "a/b"\ndraft = "lookup"\nchat = "alpaca"\n')
        with pytest.raises(UserError, match=r"no chat format is called 'alpaca' \(vicuna\)"):
            resolve(PairRequest(name="mine"))

    def test_a_target_that_a_pair_has_keeps_its_format(self) -> None:
        pair = loaded("", target="lmsys/vicuna-7b-v1.3@main", draft="lookup")
        assert pair.tokenizer.has_chat
        assert pair.info.target == "lmsys/vicuna-7b-v1.3@main"


@pytest.mark.parametrize("name", PAIRS)
async def test_the_app_runs_to_the_end(name: str) -> None:
    settings = Settings(dtype="float32", max_new_tokens=6, batch_size=3, inspect=True)
    request = AppRequest(pair=PairRequest(name=name), settings=settings, prompts=ENTRIES)
    control = Control(LiveSource(request), settings)
    app = BatchspecApp(control)
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot, 1)
        await until(pilot, lambda: control.state is State.FINISHED, 30.0)
        await pilot.pause(0.2)
        assert name in screen_text(app)
    assert control.timeline.failure is None
    summary = control.timeline.summary
    assert summary is not None
    assert all(row.output_ids for row in summary.rows)


class TestWithoutNetworkAndCache:
    def test_it_fails_at_once_with_the_way_out_and_without_torch(self, tmp_path: Path) -> None:
        code = (
            "import sys, time\n"
            "from tui.cli.main import _status\n"
            "began = time.monotonic()\n"
            "status = _status(['run', '--model-pair', 'vicuna', '--limit', '1'])\n"
            "print(status, 'torch' in sys.modules, time.monotonic() - began)\n"
        )
        environment = {
            "PATH": "",
            "HOME": str(tmp_path),
            "HF_HUB_CACHE": str(tmp_path / "none"),
            "HF_ENDPOINT": "http://127.0.0.1:9",  # nobody listens
            "BATCHSPEC_HOME": str(tmp_path / "home"),
        }
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        status, torch_there, seconds = done.stdout.split()
        assert (status, torch_there) == ("2", "False")
        assert float(seconds) < 3.0
        assert done.stderr.splitlines()[-1].startswith(
            "batchspec-tui: cannot load lmsys/vicuna-7b-v1.3 ("
        )
        assert "local model directory" in done.stderr
        assert "--model-pair smollm2 or toy" in done.stderr

    def test_a_hub_that_does_not_answer_is_not_waited_for(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        from engine.pairs import hub

        monkeypatch.undo()
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(hub, "_PATIENCE", 0.2)
        monkeypatch.setattr(hub.HfApi, "model_info", lambda *_, **__: time.sleep(5.0))
        began = time.monotonic()
        with pytest.raises(UserError, match="the hub does not answer"):
            hub.obtain("lmsys/vicuna-7b-v1.3")
        assert time.monotonic() - began < 2.0
