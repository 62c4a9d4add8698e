"""The command line: what it accepts, what it refuses and how, and what it writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine.config.faults import FAULTS
from engine.records.schema import Failure, RunHeader, Summary
from engine.records.trace import read_trace
from tests.places import ROOT
from tui.cli.main import Commands, main


class Ended(NamedTuple):
    status: int
    out: str
    err: str


class Cli:
    """Calls the command line in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: object) -> Ended:
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = self._capfd.readouterr()
        assert isinstance(end.value.code, int)
        return Ended(end.value.code, out, err)

    def refused(self, *arguments: object) -> str:
        """The one line that a wrong usage is answered with."""
        status, out, err = self(*arguments)
        assert status == 2
        assert out == ""
        assert err.startswith("batchspec-tui: ")
        assert err.count("\n") == 1, err
        assert "Traceback" not in err
        return err


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], home: Path) -> Cli:
    return Cli(capfd)


def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, **options
    )


class TestStartingUp:
    @pytest.mark.parametrize(
        "code",
        [
            "from tui.cli.main import main; main(['--help'])",
            "from tui.cli.main import main; main(['run', '--help'])",
            "from tui.cli.main import main; main(['--version'])",
            "from tui.cli.main import main; main(['pairs'])",
            "from tui.cli.main import main; main(['run', '--batch-size', '0'])",
            "import tui.app.app",
        ],
    )
    def test_it_needs_no_torch(self, code: str, home: Path) -> None:
        report = (
            "import atexit, sys\n"
            "heavy = {'torch', 'transformers', 'tokenizers', 'numpy'}\n"
            "atexit.register(lambda: print('loaded', sys.modules.keys() & heavy))\n"
        )
        ended = python("-c", report + code)
        assert "Traceback" not in ended.stderr
        assert ended.stdout.rstrip().endswith("loaded set()")

    def test_help_names_the_commands_and_options(self, cli: Cli) -> None:
        status, out, _ = cli("--help")
        assert status == 0
        for word in ("run", "pairs", "doctor", "--model-pair", "--draft-tokens", "--paused"):
            assert word in out

    def test_the_readme_tells_of_every_command(self) -> None:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        for name in Commands.lazy:
            assert f"batchspec-tui {name} " in readme

    def test_version(self, cli: Cli) -> None:
        status, out, _ = cli("--version")
        assert status == 0
        assert out.startswith("batchspec-tui")


class TestWrongUsage:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--model-pair", "nope"], "unknown --model-pair 'nope'; choose one of smollm2, toy"),
            (["--method", "magic"], "unknown method 'magic'; choose one of autoregressive, eqspec"),
            (["--device", "tpu"], "unknown --device 'tpu'; choose one of auto, cpu"),
            (["--dtype", "int3"], "unknown --dtype 'int3'; choose one of auto, float32"),
            (["--batch-size", "0"], "--batch-size must be between 1 and"),
            (["--batch-size", "many"], "'many' is not a valid integer"),
            (["--draft-tokens", "-1"], "--draft-tokens must be between 0 and"),
            (["--draft-tokens", "some"], "'some' is neither a whole number nor 'auto'"),
            (["--window", "0"], "--window must be between 1 and"),
            (["--max-new-tokens", "-3"], "--max-new-tokens must be between 0 and"),
            (["--temperature", "-1"], "--temperature must be between 0 and"),
            (["--temperature", "nan"], "--temperature must be between 0 and"),
            (["--top-p", "0"], "--top-p must be above 0"),
            (["--top-k", "-1"], "--top-k must be 0 (off) or more"),
            (["--threads", "-1"], "--threads must be 0"),
            (["--limit", "0"], "--limit must be 1 or more"),
            (["--target", "x"], "--target needs a --draft"),
            (["--target", "x", "--draft", "y", "--model-pair", "toy"], "give one of them"),
            (["--prompts", "none.txt"], "no such prompt file"),
            (["--json", "no/such/place.json"], "there is no directory"),
            (["--trace", "-"], "--trace cannot be stdout"),
            (["--nonsense"], "No such option"),
        ],
    )
    def test_it_is_one_line_for_the_app_and_for_run(
        self, cli: Cli, arguments: list[str], message: str
    ) -> None:
        assert message in cli.refused(*arguments)
        assert message in cli.refused("run", *arguments)

    def test_an_option_of_another_command_is_reported_as_such(self, cli: Cli) -> None:
        message = cli.refused("run", "--break", "diverge")
        assert message.endswith("run has no option --break; it is one of: the app, replay\n")
        assert "the app, run, verify, bench" in cli.refused("doctor", "--seed", "1")
        assert "it is one of" not in cli.refused("run", "--nonsense")

    @pytest.mark.parametrize("command", [(), ("run",), ("verify",), ("bench",)])
    def test_a_fault_is_known_before_anything_is_loaded(
        self, cli: Cli, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tui.cli.loading.load", None)
        message = cli.refused(*command, "--fault", "gremlins", "--model-pair", "toy")
        assert all(name in message for name in FAULTS)
        help_text = cli(*command, "--help").out.replace("\n", " ")
        joined = "".join(help_text.split())
        assert all(name in joined for name in FAULTS)

    def test_a_bad_prompt_line_is_named_and_nothing_is_run(self, cli: Cli, tmp_path: Path) -> None:
        file, result = tmp_path / "p.jsonl", tmp_path / "r.json"
        file.write_text('{"prompt": "good"}\n{"prompt": }\n')
        message = cli.refused("run", "--model-pair", "toy", "--prompts", file, "--json", result)
        assert "p.jsonl, line 2: not JSON" in message
        assert not result.exists()

    def test_options_before_the_command_are_not_lost_silently(self, cli: Cli) -> None:
        assert "after the command" in cli.refused("--seed", "3", "run", "--model-pair", "toy")

    def test_unknown_commands(self, cli: Cli) -> None:
        assert "No such command 'runn'" in cli.refused("runn")
        assert "unknown --model-pair" in cli.refused("pairs", "fetch", "nope")

    def test_the_app_needs_a_terminal(self, home: Path) -> None:
        ended = python("-m", "tui", "--model-pair", "toy", stdin=subprocess.DEVNULL)
        assert ended.returncode == 2
        assert ended.stderr.count("\n") == 1
        assert "no terminal" in ended.stderr
        assert "batchspec-tui run" in ended.stderr

    def test_no_chat_template_is_reported_after_loading(self, cli: Cli) -> None:
        status, _, err = cli("run", "--model-pair", "toy", "--prompt", "x", "--chat", "--quiet")
        assert status == 2
        assert err == "batchspec-tui: --chat: this tokenizer has no chat template; use --no-chat\n"

    @pytest.mark.real
    def test_without_network_and_cache_the_ways_out_are_one_line(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", "")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        message = cli.refused("run", "--prompt", "x", "--quiet")
        assert "--model-pair toy" in message


class TestRun:
    TOY = ("run", "--model-pair", "toy", "--prompt", "the river", "--prompt", "a boat")

    def test_texts_and_costs_go_to_stdout_and_progress_to_stderr(self, cli: Cli) -> None:
        status, out, err = cli(*self.TOY, "--max-new-tokens", 6)
        assert status == 0
        assert "6 tokens in" in out
        assert "a second" in out
        assert "building the toy pair" in err
        assert "batchspec-tui:" not in err

    def test_model_text_reaches_the_terminal_without_control_characters(self, cli: Cli) -> None:
        _, out, _ = cli("run", "--model-pair", "toy", "--limit", 8, "--max-new-tokens", 60)
        assert not [char for char in out if ord(char) < 32 and char != "\n"]

    def test_json_on_stdout_is_alone_there(self, cli: Cli) -> None:
        status, out, _ = cli(*self.TOY, "--max-new-tokens", 7, "--json", "-", "--seed", 3)
        result = json.loads(out)
        assert status == 0
        assert result["schema"] == "batchspec/run/1"
        assert result["method"] == "eqspec"
        assert result["pair"]["target"] == "toy target"
        assert result["settings"]["dtype"] == "float32"
        assert result["settings"]["seed"] == 3
        assert [row["index"] for row in result["rows"]] == [0, 1]
        for row in result["rows"]:
            assert row.keys() == {
                "index", "prompt_ids", "output_ids", "text", "finish_reason", "error",
                "rounds", "accepted", "drafted",
            }  # fmt: skip
            assert len(row["output_ids"]) == 7
            assert row["finish_reason"] == "length"
        totals = result["totals"]
        assert totals["output_tokens"] == 14
        assert totals["seconds_by_phase"].keys() == {
            "prefill", "draft", "verify", "accept", "realign", "schedule",
        }  # fmt: skip

    def test_a_trace_holds_the_whole_run(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "t.jsonl.zst"
        assert cli(*self.TOY, "--max-new-tokens", 6, "--trace", path).status == 0
        header, *rounds, last = read_trace(path)
        assert isinstance(header, RunHeader)
        assert [record.round for record in rounds] == list(range(1, len(rounds) + 1))  # type: ignore[union-attr]
        assert isinstance(last, Summary)
        assert not last.interrupted

    def test_quiet_says_nothing(self, cli: Cli) -> None:
        assert cli(*self.TOY, "--max-new-tokens", 2, "--quiet") == (0, "", "")

    def test_a_row_that_cannot_run_ends_with_its_error_and_the_others_run(
        self, cli: Cli, tmp_path: Path
    ) -> None:
        file, result = tmp_path / "p.jsonl", tmp_path / "r.json"
        file.write_text('{"prompt_ids": [99999]}\n{"prompt": "the river"}\n')
        status, _, err = cli(
            "run", "--model-pair", "toy", "--prompts", file, "--max-new-tokens", 4,
            "--json", result, "--quiet",
        )  # fmt: skip
        assert status == 1
        assert "row 0: token id 99999 is outside the vocabulary" in err
        first, second = json.loads(result.read_text())["rows"]
        assert first["finish_reason"] == "error"
        assert "99999" in first["error"]
        assert len(second["output_ids"]) == 4

    def test_an_error_in_the_middle_keeps_what_was_generated(
        self, cli: Cli, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from engine.runs.run import Run

        original = Run.records

        def breaking(self: Run) -> Any:
            for count, record in enumerate(original(self)):
                yield record
                if count == 2:
                    raise ValueError("the cable\nwas pulled")

        monkeypatch.setattr(Run, "records", breaking)
        result, trace = tmp_path / "r.json", tmp_path / "t.jsonl"
        status, _, err = cli(*self.TOY, "--json", result, "--trace", trace, "--quiet")
        assert status == 1
        assert err.count("\n") == 1
        assert "the cable was pulled" in err
        assert "Traceback" in (home / "logs" / "batchspec-tui.app.log").read_text()
        assert all(row["output_ids"] for row in json.loads(result.read_text())["rows"])
        assert isinstance(list(read_trace(trace))[-1], Failure)

    @pytest.mark.skipif(os.name != "posix", reason="signals")
    def test_ctrl_c_prints_what_was_generated(self, home: Path, tmp_path: Path) -> None:
        trace = tmp_path / "t.jsonl"
        command = [
            sys.executable, "-m", "tui", *self.TOY, "--json", "-", "--trace", str(trace),
            "--max-new-tokens", "4000", "--draft-tokens", "1", "--method", "autoregressive",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if trace.exists() and trace.read_bytes().count(b"\n") > 3:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 130
        result = json.loads(out)
        assert result["interrupted"]
        assert any(row["output_ids"] for row in result["rows"])
        last = list(read_trace(trace))[-1]
        assert isinstance(last, Summary)
        assert last.interrupted


class TestPairs:
    def test_list(self, cli: Cli) -> None:
        status, out, _ = cli("pairs", "list", "--json", "-")
        assert status == 0
        found = {pair["name"]: pair for pair in json.loads(out)["pairs"]}
        assert found["smollm2"]["state"] in ("fetched at first use", "installed")
        assert found["toy"]["state"] == "in memory"
        assert "smollm2" in cli("pairs").out

    def test_export_writes_two_directories(self, cli: Cli, tmp_path: Path) -> None:
        status, out, _ = cli("pairs", "export", "toy", tmp_path / "pair", "--quiet")
        assert status == 0
        assert out.split() == [str(tmp_path / "pair" / name) for name in ("target", "draft")]
        for name in ("target", "draft"):
            config = json.loads((tmp_path / "pair" / name / "config.json").read_text())
            assert config["rope_theta"] == config["rope_parameters"]["rope_theta"]
        assert "exists already" in cli.refused(
            "pairs", "export", "toy", tmp_path / "pair", "--quiet"
        )


class TestDoctor:
    def test_it_says_what_was_found(self, cli: Cli) -> None:
        status, out, _ = cli("doctor", "--json", "-")
        facts = json.loads(out)
        assert status == 0
        assert facts["schema"] == "batchspec/doctor/1"
        assert facts["devices"][0]["name"] == "cpu"
        assert facts["memory"]["total_bytes"] > 0
        assert facts["weights"]["smollm2"]["converted"] is None
        assert "torch" in cli("doctor").out
