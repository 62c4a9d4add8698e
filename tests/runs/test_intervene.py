"""Interventions between two rounds: the rows keep what they have, and the outputs stay right."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from engine.config.errors import UserError
from engine.config.methods import CORRECT_METHODS, METHODS
from engine.config.settings import Sampling
from engine.records.schema import ChangeRecord, RoundRecord
from engine.runs.intervene import add_prompt, change, force, go_back
from engine.runs.run import Run
from tests.cases import PROMPTS, settings_of, solo
from tests.tiny import tiny_pair
from tui.view.sentences import change_words

PAIR = tiny_pair()


def go(
    job: Run, at: int, act: Callable[[Run], ChangeRecord]
) -> tuple[ChangeRecord, list[RoundRecord]]:
    """Run to the end, with `act` after round `at`. The change, and all rounds."""
    changes: list[ChangeRecord] = []
    rounds: list[RoundRecord] = []
    stream: Iterator[object] = job.records()
    for record in stream:
        if isinstance(record, RoundRecord):
            rounds.append(record)
            if record.round == at:
                changes.append(act(job))
    return changes[0], rounds


def outputs(job: Run) -> list[tuple[int, ...]]:
    return [row.output_ids for row in job.summary().rows]


@pytest.mark.parametrize("after", CORRECT_METHODS)
@pytest.mark.parametrize("before", ["eqspec", "slotspec", "bsp"])
def test_another_method_from_the_next_round_on(before: str, after: str) -> None:
    job = Run(PAIR, settings_of(before), PROMPTS)
    changes, rounds = go(job, 2, lambda run: change(run, settings_of(after)))
    assert changes.round == 2
    assert changes.method == after
    assert [record.round for record in rounds] == list(range(1, len(rounds) + 1))
    if before in CORRECT_METHODS:
        assert outputs(job) == solo(PAIR)
        assert not any(record.violations for record in rounds)


@pytest.mark.parametrize("draft_tokens", [0, 2, 6])
@pytest.mark.parametrize("method", [name for name in METHODS if name != "autoregressive"])
def test_another_k_from_the_next_round_on(method: str, draft_tokens: int) -> None:
    job = Run(PAIR, settings_of(method), PROMPTS)
    loop = job.loop
    if method == "dsd" and draft_tokens == 0:
        pytest.skip("dsd always drafts")
    changes, rounds = go(
        job, 1, lambda run: change(run, settings_of(method, draft_tokens=draft_tokens))
    )
    assert change_words(changes) == f"K = {draft_tokens}"
    assert changes.settings["draft_tokens"] == draft_tokens
    assert rounds[0].draft_tokens == 3
    assert {record.draft_tokens for record in rounds[1:]} == {draft_tokens}
    assert (job.loop is loop) == (draft_tokens <= 3), "a smaller K costs nothing"
    if method in CORRECT_METHODS:
        assert outputs(job) == solo(PAIR)


def test_other_batch_size_and_temperature() -> None:
    job = Run(PAIR, settings_of("exspec"), PROMPTS)
    hot = settings_of("exspec", batch_size=2, sampling=Sampling(temperature=1.5, seed=4))
    changes, rounds = go(job, 1, lambda run: change(run, hot))
    assert change_words(changes) == "B = 2, temperature = 1.5, seed = 4"
    assert max(len(record.rows) for record in rounds[1:]) == 2
    assert not any(record.violations for record in rounds)


def test_what_cannot_be_used_changes_nothing() -> None:
    job = Run(PAIR, settings_of("eqspec"), PROMPTS)
    with pytest.raises(UserError, match="--batch-size"):
        change(job, settings_of("eqspec", batch_size=0))
    assert job.settings == settings_of("eqspec")


@pytest.mark.parametrize("method", CORRECT_METHODS)
@pytest.mark.parametrize("length", [2, 40])
def test_a_prompt_joins_a_running_pool(method: str, length: int) -> None:
    from tests.tiny import prompts_of

    extra = prompts_of([*(p.ids for p in PROMPTS), tuple(range(3, 3 + length % 30)) * 2])
    job = Run(PAIR, settings_of(method), PROMPTS)

    def join(run: Run) -> ChangeRecord:
        run.join(extra[-1])
        return ChangeRecord()

    _, rounds = go(job, 2, join)
    assert outputs(job) == solo(PAIR, extra)
    assert any(extra[-1].index in record.admitted for record in rounds)


@pytest.mark.parametrize("method", ["eqspec", "exspec", "slotspec"])
def test_rows_go_back_and_come_to_the_same_end(method: str) -> None:
    job = Run(PAIR, settings_of(method), PROMPTS)
    noted: list[dict[int, int]] = []
    rounds = []
    for record in job.records():
        if isinstance(record, RoundRecord):
            rounds.append(record)
            noted.append(job.lengths())
            if record.round == 4:
                changes = go_back(job, noted[1] | {0: 10_000}, 2)
                assert job.lengths() | {0: 0} == noted[1] | {0: 0}
    assert "as after round 2" in change_words(changes)
    assert set(rounds[4].back) <= {
        row for row, length in noted[1].items() if length < noted[3][row]
    }
    assert rounds[4].back
    assert outputs(job) == solo(PAIR)


def test_a_prompt_needs_a_tokenizer_here() -> None:
    with pytest.raises(UserError, match="tokenizer"):
        add_prompt(Run(PAIR, settings_of("eqspec"), PROMPTS), "hello")


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9, seed=2)])
@pytest.mark.parametrize("method", ["eqspec", "exspec", "slotspec", "rollback"])
def test_a_forced_draft_token_is_verified_and_does_no_harm(method: str, sampling: Sampling) -> None:
    def forcing(run: Run) -> ChangeRecord:
        for row in run.rows:
            if row.running:
                force(run, row.index, "#17 #18")
        return ChangeRecord()

    job = Run(PAIR, settings_of(method, inspect=True, sampling=sampling), PROMPTS)
    _, rounds = go(job, 1, forcing)
    forced = [row for record in rounds for row in record.rows if row.forced]
    assert forced
    for row in forced:
        assert row.draft_token_ids[: row.forced] == (17, 18)[: row.forced]
        assert row.tests[0].token == 17
    assert any(row.accepted == 0 and row.bonus != 17 for row in forced)
    if sampling.greedy:
        assert outputs(job) == solo(PAIR)
    assert not any(record.violations for record in rounds)


def test_what_cannot_be_forced_is_reported() -> None:
    job = Run(PAIR, settings_of("eqspec", inspect=True), PROMPTS)
    with pytest.raises(UserError, match="outside the vocabulary"):
        force(job, 0, "#4000")
    with pytest.raises(UserError, match="row 99"):
        force(job, 99, "#4")
    with pytest.raises(UserError, match="no draft model"):
        force(Run(PAIR, settings_of("autoregressive", inspect=True), PROMPTS), 0, "#4")
    with pytest.raises(UserError, match="inspected"):
        force(Run(PAIR, settings_of("eqspec"), PROMPTS), 0, "#4")
