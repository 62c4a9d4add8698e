"""Synthetic acceptance: as many draft tokens as asked for, in a right state, and never in
silence."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.config.errors import UserError
from engine.config.settings import Sampling, Settings
from engine.evaluation.bench import bench
from engine.evaluation.oracle import Oracle
from engine.evaluation.verify import verify
from engine.evaluation.watched_run import with_oracle
from engine.records.schema import OracleRecord, Prompt
from engine.rounds.synthetic_acceptance import SyntheticAcceptance
from engine.runs.run import Run
from tests.cases import SPECULATIVE, every_speculative_method
from tests.tiny import Finished, mixed_prompts, tiny_pair
from tests.tui.cli.test_cli import Cli
from tui.session.reproduce import command_line
from tui.view.lines import plain
from tui.view.panes.status import identity
from tui.view.sentences import warning_words
from tui.view.state.frame import Frame
from tui.view.state.timeline import Timeline

PROMPTS = mixed_prompts(8, seed=5, longest=12)
K = 4


def forced(
    method: str, rate: float, prompts: tuple[Prompt, ...] = PROMPTS, **other: Any
) -> Finished:
    sizes = {"batch_size": 4, "draft_tokens": K, "max_new_tokens": 30}
    settings = Settings(method=method, force_accept=rate, **{**sizes, **other})
    return Finished(tiny_pair(eos_ids=()), settings, prompts)


def at(index: int, length: int) -> Any:
    """What the pattern looks at of a row."""
    return SimpleNamespace(index=index, length=length)


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.9])
def test_as_many_are_accepted_as_the_rate_says(rate: float) -> None:
    """The leading run of K draft tokens has a mean of r + r² + … + r^K."""
    pattern = SyntheticAcceptance(Settings(force_accept=rate))
    runs = [pattern(at(row, K * turn), range(K), ()) for row in range(100) for turn in range(100)]
    expected = sum(rate**j for j in range(1, K + 1))
    assert sum(runs) / len(runs) == pytest.approx(expected, rel=0.02)
    accepted_first = sum(run > 0 for run in runs) / len(runs)
    assert accepted_first == pytest.approx(rate, abs=0.015)


@pytest.mark.parametrize("method", [name for name in SPECULATIVE if name != "rollback"])
def test_every_method_accepts_what_the_pattern_says(method: str) -> None:
    done = forced(method, 0.6, force_spread=0.3)
    pattern = SyntheticAcceptance(Settings(force_accept=0.6, force_spread=0.3))
    for record in done.rounds:
        for row in record.rows:
            assert row.accepted == pattern(at(row.row, row.before), row.draft_token_ids, ())
    assert done.summary.totals.accepted_per_row_round > 0.5


@pytest.mark.parametrize(("rate", "whole"), [(0.0, 0), (1.0, K)])
@every_speculative_method
def test_at_the_ends_it_is_none_or_all(method: str, rate: float, whole: int) -> None:
    rows = [row for record in forced(method, rate).rounds for row in record.rows]
    assert all(row.accepted == min(whole, len(row.draft_token_ids)) for row in rows)


@every_speculative_method
def test_the_state_is_right_and_i5_is_not_claimed(method: str) -> None:
    done = forced(method, 0.6, force_spread=0.3, audit=True)
    assert done.violations == []
    assert {record.checked for record in done.rounds} == {("I1", "I2", "I3", "I4")}
    assert [len(output) for output in done.outputs] == [30] * len(PROMPTS)


def test_the_pattern_is_a_rows_own() -> None:
    """Neither neighbours nor the method change it; the seed does."""

    def pattern(done: Finished, row: int = 5) -> list[tuple[int, int]]:
        return [(one.before, one.accepted) for one in done.of_row(row)]

    whole = pattern(forced("eqspec", 0.5, force_spread=0.4))
    assert len({accepted for _, accepted in whole}) > 2
    for method in ("exspec", "slotspec"):
        assert pattern(forced(method, 0.5, force_spread=0.4)) == whole
    assert pattern(forced("eqspec", 0.5, PROMPTS[5:6], force_spread=0.4)) == whole
    reseeded = forced("eqspec", 0.5, PROMPTS[5:6], force_spread=0.4, sampling=Sampling(seed=1))
    assert pattern(reseeded) != whole


def test_rates_lie_evenly_about_the_rate() -> None:
    pattern = SyntheticAcceptance(Settings(force_accept=0.6, force_spread=0.3))
    rates = [pattern.rate_of(row) for row in range(2000)]
    assert min(rates) >= 0.3
    assert max(rates) <= 0.9
    assert sum(rates) / len(rates) == pytest.approx(0.6, abs=0.02)
    assert sum(rate < 0.45 for rate in rates) / len(rates) == pytest.approx(0.25, abs=0.04)


def test_an_inspected_run_tells_what_the_pattern_did() -> None:
    done = forced("eqspec", 0.5, PROMPTS[:4], inspect=True)
    for record in done.rounds:
        for row in record.rows:
            accepted = [test.accepted for test in row.tests]
            assert accepted == [at < row.accepted for at in range(len(row.draft_token_ids))]


# ---- nobody takes it for the target's text ------------------------------------------------

WARNING = (
    "acceptance is forced at a rate of 0.6 ± 0.1: the texts are not what the target would write"
)
FORCED = Settings(force_accept=0.6, force_spread=0.1, max_new_tokens=12)


def test_verify_refuses() -> None:
    with pytest.raises(UserError, match="nothing can be verified where acceptance is forced"):
        verify(tiny_pair(), FORCED, ["eqspec"], PROMPTS[:2])


def test_the_oracle_is_not_asked() -> None:
    pair = tiny_pair()
    run = Run(pair, FORCED, PROMPTS[:2])
    stream = list(with_oracle(run, run.records(), lambda: True, lambda: Oracle(pair)))
    assert not any(isinstance(record, OracleRecord) for record in stream)


def test_the_benchmark_says_so_and_keeps_the_rate() -> None:
    result = bench(tiny_pair(eos_ids=()), FORCED, ["slotspec"], PROMPTS, batch_sizes=[4], repeats=1)
    assert warning_words(result.settings) == WARNING
    assert result.settings["force_accept"] == 0.6
    plain, in_slots, speculating = result.results
    assert plain.median.accepted_per_row_round == in_slots.median.accepted_per_row_round == 0
    assert speculating.median.accepted_per_row_round > 0.5


def test_screen_and_command_line_say_so() -> None:
    header = Run(tiny_pair(), FORCED, PROMPTS[:2]).header()
    assert warning_words(header.settings) == WARNING
    assert "--force-accept 0.6 --force-spread 0.1" in command_line(header)
    timeline = Timeline()
    timeline.add(header)
    assert " forced: 60% accepted " in plain(identity(Frame(timeline), 100))
    assert warning_words({}) == ""


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capfd)


def test_json_trace_and_tables_say_so(cli: Cli, tmp_path: Path) -> None:
    out, trace = tmp_path / "out.json", tmp_path / "out.jsonl"
    options = ["--model-pair", "toy", "--max-new-tokens", "4", "--limit", "2"]
    forcing = ["--force-accept", "0.6", "--force-spread", "0.1"]
    done = cli("run", *options, *forcing, "--json", out, "--trace", trace)
    assert done.status == 0, done.err
    assert WARNING[1:] in " ".join(done.out.split())
    assert json.loads(out.read_text())["warning"] == WARNING
    settings = json.loads(trace.read_text().splitlines()[0])["settings"]
    assert warning_words(settings) == WARNING


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(force_accept=1.5), "--force-accept must be between 0 and 1, not 1.5"),
        (Settings(force_spread=0.1), "--force-spread needs --force-accept"),
        (Settings(force_accept=0.9, force_spread=0.3), "--force-spread must be between 0 and 0.1"),
        (Settings(force_accept=0.5, fault="eos-ignored"), "no --force-accept"),
        (
            Settings(force_accept=0.5, sampling=Sampling(temperature=0.7)),
            "use --temperature 0",
        ),
    ],
)
def test_what_cannot_be_forced_is_reported(settings: Settings, message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings.check()


def test_commands_that_compare_with_the_target_refuse(cli: Cli) -> None:
    said = cli.refused("--force-accept", "0.5", "--break", "diverge")
    assert "--break diverge cannot apply: acceptance is forced at a rate of 0.5" in said
    assert "nothing can be verified" in cli.refused("verify", "--force-accept", "0.5")
