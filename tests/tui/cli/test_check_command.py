"""`batchspec-tui check`, from a run's own result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tui.cli.main import _status

COMMON = ["--model-pair", "toy", "--dtype", "float64", "--device", "cpu"]


@pytest.fixture
def result(tmp_path: Path, home: Path) -> Path:
    """What `run --json` wrote, the second of its three rows cut short."""
    path = tmp_path / "run.json"
    options = ["--limit", "3", "--max-new-tokens", "16", "--quiet", "--json", str(path)]
    assert _status(["run", *COMMON, *options]) == 0
    written = json.loads(path.read_text(encoding="utf-8"))
    row = written["rows"][1]
    row["output_ids"], row["finish_reason"] = row["output_ids"][:10], ""
    path.write_text(json.dumps(written), encoding="utf-8")
    return path


def test_the_table_tells_the_rate_and_each_cause(
    result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _status(["check", str(result), *COMMON, "--require", "0.5"]) == 0
    shown = capsys.readouterr().out
    assert "2 of 3 rows exact" in shown
    assert "causes: stopped 1" in shown


def test_a_rate_that_is_not_reached_is_status_3_and_json_is_alone_on_stdout(
    result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["check", str(result), *COMMON, "--require", "0.7", "--json", "-"]
    assert _status(line) == 3
    out, err = capsys.readouterr()
    written = json.loads(out)
    assert written["schema"] == "batchspec/check/1"
    assert (written["exact"], written["total"]) == (2, 3)
    assert written["divergences"][0]["cause"] == "stopped"
    assert "exact rate 0.6667 is below the required 0.7" in err


def test_a_file_that_is_not_there_is_wrong_usage(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _status(["check", str(tmp_path / "none.jsonl")]) == 2
    assert "no such file" in capsys.readouterr().err
