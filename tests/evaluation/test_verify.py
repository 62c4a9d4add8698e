"""verify: exact and partial rates, the cause of each divergence, and what is required."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from engine.config.errors import UserError
from engine.config.settings import Sampling, Settings
from engine.evaluation.verify import Verification, runnable_methods, verify
from engine.methods import eqspec
from engine.records.schema import Prompt
from engine.rounds.sequence import Sequence
from tests.cases import BUDGET, PROMPTS, SPECULATIVE, B, K
from tests.tiny import broken_forward, tiny_pair
from tui.cli.main import main

SETTINGS = Settings(batch_size=B, draft_tokens=K, max_new_tokens=BUDGET)
Call = Callable[..., tuple[int, str, str]]


def verified(*names: str, pair: Any = None, prompts: Any = PROMPTS, **other: Any) -> Verification:
    settings = msgspec.structs.replace(SETTINGS, **other)
    return verify(pair or tiny_pair(), settings, names, prompts)


def test_every_correct_method_equals_the_oracle() -> None:
    assert list(runnable_methods()) == SPECULATIVE
    stages: list[str] = []
    result = verify(
        tiny_pair(),
        SETTINGS,
        SPECULATIVE,
        PROMPTS,
        progress=lambda stage, fraction: stages.append(stage),
    )
    assert [*result.methods] == SPECULATIVE
    for verdict in result.methods.values():
        assert (verdict.exact, verdict.total) == (len(PROMPTS), len(PROMPTS))
        assert (verdict.exact_rate, verdict.partial_rate) == (1.0, 1.0)
        assert verdict.divergences == ()
        assert verdict.cut_at_eos is None
    assert result.tolerance < 1e-11
    assert list(dict.fromkeys(stages)) == ["oracle", "measuring the tolerance", *SPECULATIVE]


def test_a_broken_method_is_a_desync_with_its_invariant() -> None:
    result = verified("eqspec", fault="positions-not-rebuilt")
    verdict = result.methods["eqspec"]
    assert verdict.exact < verdict.total
    assert 0.0 < verdict.partial_rate < 1.0
    assert verdict.exact + len(verdict.divergences) == verdict.total
    for divergence in verdict.divergences:
        assert divergence.cause == "desync"
        assert divergence.invariant in ("I2", "I3")
        assert divergence.round is not None


def test_other_rounding_in_the_wide_shape_is_numeric() -> None:
    pair = tiny_pair()

    def noisy(call: int, feed: Any, logits: torch.Tensor) -> torch.Tensor:
        if feed.ids.shape[1] == 1:
            return logits
        noise = torch.Generator().manual_seed(int(feed.ids.sum()))
        return logits + 0.4 * (torch.rand(logits.shape, generator=noise) - 0.5)

    with broken_forward(pair.target, noisy):
        result = verified("eqspec", "slotspec", pair=pair)
    assert 0.3 < result.tolerance < 0.41
    found = [d for verdict in result.methods.values() for d in verdict.divergences]
    assert found
    for divergence in found:
        assert (divergence.cause, divergence.invariant) == ("numeric", None)
        assert divergence.oracle_gap is not None
        assert divergence.oracle_gap <= result.tolerance


class Early(Sequence):
    """A row that its method stops after five tokens."""

    def commit(self, block: Any) -> list[int]:
        kept = super().commit(block[: self.prompt_length + 5 - self.length])
        if self.running and self.length - self.prompt_length >= 5:
            self.finish_reason = "batch"
        return kept


def test_a_row_that_is_ended_early_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    early = replace(eqspec.METHOD, row=Early)
    pair = tiny_pair(eos_ids=())
    expected = verified("slotspec", pair=pair)
    assert expected.methods["slotspec"].exact_rate == 1.0
    monkeypatch.setattr(eqspec, "METHOD", early)
    # the tolerance is measured in eqspec's layout, with rows of its kind
    verdict = verified("eqspec", pair=pair).methods["eqspec"]
    assert verdict.exact == 0
    assert verdict.partial_rate == pytest.approx(5 / BUDGET)
    for divergence in verdict.divergences:
        assert (divergence.cause, divergence.position, divergence.got) == ("stopped", 5, None)


def test_methods_that_run_past_eos_are_also_compared_cut_there() -> None:
    verdict = verified("bsp", max_new_tokens=24).methods["bsp"]
    assert verdict.cut_at_eos is not None
    assert verdict.cut_at_eos.exact_rate >= verdict.exact_rate
    assert verdict.cut_at_eos.partial_rate >= verdict.partial_rate
    assert len(verdict.divergences) == verdict.total - verdict.cut_at_eos.exact
    assert {divergence.cause for divergence in verdict.divergences} <= {"desync"}


def test_dsd_diverges_by_its_own_faults() -> None:
    verdict = verified("dsd").methods["dsd"]
    assert verdict.exact_rate < 1.0
    for divergence in verdict.divergences:
        assert divergence.cause == "desync"
        assert divergence.invariant is not None


def test_rows_that_cannot_run_are_reported() -> None:
    prompts = (Prompt(index=0, ids=(), error="empty prompt"), *PROMPTS[1:])
    verdict = verified("slotspec", prompts=prompts).methods["slotspec"]
    assert verdict.errors == {0: "empty prompt"}
    assert verdict.exact == verdict.total


def test_equality_is_defined_for_greedy_decoding() -> None:
    with pytest.raises(UserError, match="temperature"):
        verified("eqspec", sampling=Sampling(temperature=0.5))


# ---- the command ------------------------------------------------------------------------


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], home: Path) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        options = ("--model-pair", "toy", "--max-new-tokens", "10", "--limit", "3")
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["verify", *options, *arguments])
        out, err = capfd.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, out, err

    return run


def test_the_table_goes_to_stdout_and_progress_to_stderr(call: Call) -> None:
    status, out, err = call("--methods", "eqspec,slotspec", "--require", "eqspec=1.0")
    assert status == 0
    assert "3 of 3" in out
    assert "slotspec" in out
    assert "oracle" in err
    assert "oracle" not in out


def test_json_follows_the_contract(call: Call, tmp_path: Path) -> None:
    status, out, _ = call("--methods", "eqspec,dsd", "--json", "-", "--quiet")
    assert status == 0
    result = json.loads(out)
    assert result["schema"] == "batchspec/verify/1"
    assert result["methods"]["eqspec"]["exact_rate"] == 1.0
    broken = result["methods"]["dsd"]
    assert broken["exact_rate"] < 1.0
    assert set(broken["cut_at_eos"]) == {"exact", "total", "exact_rate", "partial_rate"}
    named = {"index", "position", "expected", "got", "oracle_gap", "cause", "invariant", "round"}
    for divergence in broken["divergences"]:
        assert named <= set(divergence)
    assert result["pair"]["name"] == "toy"
    assert result["settings"]["dtype"] == "float32"


def test_a_rate_that_is_not_reached_exits_3(call: Call) -> None:
    status, out, err = call("--methods", "dsd", "--require", "dsd=0.9")
    assert status == 3
    assert "below the required 0.9" in err
    assert "I" in out


def test_a_row_that_cannot_run_exits_1(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "ids.jsonl"
    file.write_text('{"prompt_ids": [5, 6]}\n{"prompt_ids": [99999]}\n')
    status, _, err = call("--methods", "slotspec", "--prompts", str(file))
    assert status == 1
    assert "row 1: token id 99999 is outside the vocabulary" in err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--temperature", "0.5"], "--temperature 0"),
        (["--methods", "magic"], "unknown method 'magic'"),
        (["--methods", ","], "--methods is empty"),
        (["--require", "eqspec"], "NAME=RATE"),
        (["--require", "eqspec=2"], "NAME=RATE"),
        (["--require", "magic=1"], "unknown method 'magic'"),
        (["--methods", "eqspec", "--require", "dsd=1"], "not run"),
        (["--trace", "t.jsonl"], "no trace"),
    ],
)
def test_wrong_usage_exits_2_with_one_line(call: Call, arguments: list[str], why: str) -> None:
    status, out, err = call(*arguments)
    assert status == 2
    assert out == ""
    assert why in err
    assert err.count("\n") == 1
