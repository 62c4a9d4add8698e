"""`doctor` says what the machine has, and what that means for a run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tui.cli.main import _status

GPUS = [
    SimpleNamespace(name="NVIDIA H200", total_memory=150_000_000_000, major=9, minor=0),
    SimpleNamespace(name="Tesla T4", total_memory=16_000_000_000, major=7, minor=5),
]


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs, as torch would tell of it."""

    def facts(device: Any) -> SimpleNamespace:
        return GPUS[device if isinstance(device, int) else device.index or 0]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(GPUS))
    monkeypatch.setattr(torch.cuda, "get_device_properties", facts)
    monkeypatch.setattr(
        torch.cuda, "get_device_capability", lambda d: (facts(d).major, facts(d).minor)
    )
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda d: (10**9, facts(d).total_memory))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda d: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda d: 0)
    monkeypatch.setattr(torch.version, "cuda", "13.0")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal on which no line is folded."""
    monkeypatch.setenv("COLUMNS", "300")


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert _status(["doctor", *args]) == 0
    return capsys.readouterr().out


def line(text: str, name: str) -> str:
    """What stands beside a name."""
    found = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return found.removeprefix(name).strip()


def test_each_gpu_with_its_memory_and_number_format(
    home: Path, two_gpus: None, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys)
    assert line(text, "cuda:0") == (
        "NVIDIA H200, 1.0 GB free of 150.0, bfloat16 native, sm_90, auto takes bfloat16"
    )
    assert "Tesla T4" in line(text, "cuda:1")
    assert "bfloat16 emulated or none" in line(text, "cuda:1")
    assert line(text, "auto means") == "cuda, bfloat16"
    assert line(text, "--cuda-graphs") == "possible (CUDA 13.0)"


def test_why_graphs_are_not_possible(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "built without CUDA" in line(said(capsys), "--cuda-graphs")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert "no CUDA device found" in line(said(capsys), "--cuda-graphs")


def test_which_pairs_are_ready(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("target", "draft"):
        (home / name).mkdir(parents=True)
        (home / name / "config.json").write_text("{}")
    text = said(capsys)
    directory = Path(line(text, "configuration"))
    directory.mkdir(parents=True, exist_ok=True)
    listed = f'[pairs.mine]\ntarget = "{home / "target"}"\ndraft = "{home / "draft"}"\n'
    (directory / "pairs.toml").write_text(listed)
    facts = json.loads(said(capsys, "--json", "-"))
    assert facts["pairs"]["mine"] == "ready"
    assert facts["pairs"]["toy"] == "in memory"
    assert facts["pairs"]["vicuna"] in ("ready", "on the hub")
    assert "90 MB" in line(text, "pair smollm2")


def test_a_list_of_pairs_that_cannot_be_read_is_said_too(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = Path(line(said(capsys), "configuration"))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pairs.toml").write_text("[pairs.mine\n")
    assert "pairs.toml" in line(said(capsys), "pair pairs")


@pytest.mark.parametrize(
    ("variable", "words"), [("", "2 threads,"), ("1", "(OMP_NUM_THREADS is 1)")]
)
def test_who_chose_the_threads(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    words: str,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1 if variable else 2)
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    text = line(said(capsys), "cpu")
    assert words in text
    assert "1 threads" not in text
    assert ("OMP_NUM_THREADS" in text) == bool(variable)
