"""bench: methods interleaved, medians with their spread, and a fair baseline."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config.settings import Settings
from engine.evaluation import bench as module
from engine.evaluation.bench import Benchmark, bench
from tests.cases import PROMPTS
from tests.tiny import tiny_pair
from tui.cli.main import main

SETTINGS = Settings(draft_tokens=3, max_new_tokens=8)
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def result() -> Benchmark:
    return bench(
        tiny_pair(), SETTINGS, ("eqspec", "slotspec"), PROMPTS, batch_sizes=(1, 3), repeats=2
    )


def test_each_batch_size_has_its_baselines_and_methods(result: Benchmark) -> None:
    rows = [(entry.batch_size, entry.method, entry.continuous) for entry in result.results]
    assert rows == [
        (size, method, continuous)
        for size in (1, 3)
        for method, continuous in (
            ("autoregressive", False),
            ("autoregressive", True),
            ("eqspec", False),
            ("slotspec", True),
        )
    ]


def test_the_median_lies_between_the_smallest_and_the_largest(result: Benchmark) -> None:
    for entry in result.results:
        for name in ("seconds", "tokens_per_second", "engine_seconds_per_round", "wall_seconds"):
            low, mid, high = (getattr(s, name) for s in (entry.min, entry.median, entry.max))
            assert 0.0 < low <= mid <= high
        assert entry.median.wall_seconds >= entry.median.seconds * 0.9
        assert entry.median.engine_seconds_per_round * entry.median.rounds < entry.max.wall_seconds


def test_all_methods_write_the_same_tokens(result: Benchmark) -> None:
    assert len({entry.median.output_tokens for entry in result.results}) == 1


def test_the_speedup_is_against_the_padded_batch_of_the_same_size(result: Benchmark) -> None:
    base = {
        entry.batch_size: entry.median.tokens_per_second
        for entry in result.results
        if entry.method == "autoregressive" and not entry.continuous
    }
    for entry in result.results:
        expected = entry.median.tokens_per_second / base[entry.batch_size]
        assert entry.speedup_vs_autoregressive == pytest.approx(expected)


def test_slots_never_realign(result: Benchmark) -> None:
    for entry in result.results:
        if entry.method == "slotspec":
            assert entry.max.realign_bytes == 0
        if entry.method == "eqspec" and entry.batch_size > 1:
            assert entry.min.realign_bytes > 0


def test_the_machine_is_described(result: Benchmark) -> None:
    assert {"platform", "devices", "cores", "threads", "versions"} <= set(result.machine)
    assert {"python", "torch", "transformers"} <= set(result.machine["versions"])
    assert result.settings["dtype"] == "float64"
    assert (result.prompts, result.repeats) == (len(PROMPTS), 2)


def test_methods_are_interleaved_after_one_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    measure = module.measure

    def noted(pair: Any, settings: Settings, prompts: Any) -> Any:
        order.append(f"{settings.method} {settings.batch_size}")
        return measure(pair, settings, prompts)

    monkeypatch.setattr(module, "measure", noted)
    small = Settings(draft_tokens=2, max_new_tokens=2)
    bench(tiny_pair(), small, ("eqspec",), PROMPTS[:2], batch_sizes=(1, 2), repeats=2)
    once = ["autoregressive 1", "eqspec 1", "autoregressive 2", "eqspec 2"]
    assert order == once * 3


def test_the_models_are_left_as_they_were(result: Benchmark) -> None:
    pair = tiny_pair()
    bench(pair, SETTINGS, ("eqspec",), PROMPTS[:1], batch_sizes=(1,), repeats=1)
    assert "forward" not in vars(pair.target)
    assert "forward" not in vars(pair.draft)


# ---- the command ------------------------------------------------------------------------


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], home: Path) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        options = ("--model-pair", "toy", "--max-new-tokens", "4", "--limit", "2")
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["bench", *options, *arguments])
        out, err = capfd.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, out, err

    return run


def test_json_follows_the_contract(call: Call) -> None:
    status, out, _ = call(
        "--methods", "slotspec", "--batch-sizes", "1,2", "--repeats", "1", "--json", "-"
    )
    assert status == 0
    result = json.loads(out)
    assert result["schema"] == "batchspec/bench/1"
    assert {entry["batch_size"] for entry in result["results"]} == {1, 2}
    totals = {
        "output_tokens", "seconds", "tokens_per_second", "rounds", "row_rounds",
        "accepted_per_row_round", "seconds_by_phase", "realign_share", "realign_bytes",
        "grouped_rounds", "fallback_rounds", "peak_memory_bytes",
    }  # fmt: skip
    for entry in result["results"]:
        assert "speedup_vs_autoregressive" in entry
        for statistic in ("median", "min", "max"):
            assert totals <= set(entry[statistic])


def test_the_table(call: Call) -> None:
    status, out, err = call("--method", "eqspec", "--batch-size", "2", "--repeats", "1")
    assert status == 0
    assert "autoregressive" in out
    assert "eqspec" in out
    assert "slotspec" not in out
    assert "torch" in out
    for stage in ("warming up", "repeat 1 of 1"):
        for method in ("autoregressive", "eqspec"):
            assert f"{stage}: {method}, B=2\n" in err
    assert "only" not in err


def test_a_batch_larger_than_the_prompts_is_reported(call: Call) -> None:
    sizes = ("--limit", "1", "--batch-sizes", "1,2,4", "--max-new-tokens", "2")
    status, out, err = call("--method", "eqspec", *sizes, "--repeats", "1")
    assert status == 0
    assert "only 1 prompt: B=2, 4 is measured with 1 row\n" in err
    assert "1 prompt, 2 new tokens" in out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--batch-sizes", "1,x"], "'x' is no batch size"),
        (["--batch-sizes", "0"], "'0' is no batch size"),
        (["--repeats", "0"], "--repeats"),
        (["--trace", "t.jsonl"], "no trace"),
        (["--methods", "magic"], "unknown method 'magic'"),
    ],
)
def test_wrong_usage_exits_2_with_one_line(call: Call, arguments: list[str], why: str) -> None:
    status, out, err = call(*arguments)
    assert status == 2
    assert out == ""
    assert why in err
    assert err.count("\n") == 1
