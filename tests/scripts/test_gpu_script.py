"""`scripts/gpu.py` on the CPU: all of its stages, and what becomes of one that fails."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.places import ROOT

SCRIPTS = ROOT / "scripts"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr("engine.runs.run.require_graphs", lambda models: None)
    import gpu

    return gpu


def test_all_of_it_on_tiny_shapes(
    gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The models are lively enough that the broken baselines are found out."""
    place = tmp_path / "gpu.json"
    assert gpu.main(["--device", "cpu", "--quick", "--json", str(place)]) == 0
    facts = json.loads(place.read_text())
    assert facts["schema"] == "batchspec/gpu/1"
    lines = facts["lines"]
    assert not [line["result"] for line in lines if "skipped" in line["result"]]
    compared = {line["method"]: line for line in lines if line["stage"] == "outputs float32"}
    assert compared["eqspec"]["accepted"] > 0.5
    assert compared["bsp"]["exact"] < compared["bsp"]["total"]
    strict = [line for line in lines if line["stage"] == "outputs bfloat16 strict"]
    assert [line["exact"] for line in strict if line["method"] == "slotspec"] == [4, 4]
    timed = [line for line in lines if line["stage"] == "time"]
    assert {line["batch_size"] for line in timed} == {1, 4}
    assert all(line["tokens_per_second"] > 0 for line in timed)
    text = capsys.readouterr().out
    assert "slotspec in fixed shapes" in text
    assert "WRONG" not in text


def test_a_case_that_fails_stops_no_other(gpu: ModuleType) -> None:
    def fail() -> dict[str, Any]:
        raise RuntimeError("no memory\nfor this")

    from gpu_report import name_of

    report = gpu.Report(1.0, recorded=True)
    report.case("time", fail, method="eqspec", batch_size=4)
    report.case("time", lambda: {"result": "ok"}, method="slotspec", batch_size=4, graphs=True)
    results = [line["result"] for line in report.lines]
    assert results == ["FAILED: RuntimeError: no memory", "ok"]
    assert name_of(report.lines[1]) == "time B=4 slotspec + graphs"
    assert report.failed


def test_no_case_begins_when_the_time_is_up(gpu: ModuleType) -> None:
    report = gpu.Report(-1.0, recorded=True)
    line = report.case("time", lambda: {"result": "ok"}, method="eqspec")
    assert line["result"] == "skipped: out of time"
    assert not report.failed


def test_without_a_gpu_it_says_so(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert gpu.main([]) == 2
