"""Drafts without a model: the row's own text, and a table of n-grams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from engine.config.errors import UserError
from engine.config.methods import CORRECT_METHODS
from engine.config.settings import Sampling, Settings
from engine.drafting.ngram_table import NgramTable
from engine.drafting.prompt_lookup import FIRST_GUESS, Chance, LookupDraft, NgramDraft, SuffixIndex
from engine.evaluation.oracle import Oracle
from engine.records.schema import Prompt, Summary
from engine.rounds.sequence import Sequence
from engine.runs.run import Run
from tests.tiny import mixed_prompts, prompts_of, tiny_pair
from tui.cli.commands.ngram import ngram


def row(*tokens: int) -> Sequence:
    return Sequence(Prompt(index=0, ids=tokens), budget=50, context=100, eos_ids=frozenset())


def looked_up(sequence: Sequence, count: int = 5) -> tuple[int, list[int]]:
    index = SuffixIndex()
    index.extend(sequence)
    return index.continuation(sequence, count)


def test_the_longest_suffix_wins() -> None:
    assert looked_up(row(1, 2, 3, 9, 2, 3, 7, 1, 2, 3)) == (3, [9, 2, 3, 7, 1])


def test_of_equal_matches_the_latest_wins() -> None:
    assert looked_up(row(5, 8, 1, 5, 9, 2, 5), count=1) == (1, [9])


def test_a_row_without_a_match_drafts_nothing() -> None:
    assert looked_up(row(1, 2, 3, 4)) == (0, [])


def test_the_end_of_the_row_is_no_match_of_itself() -> None:
    assert looked_up(row(4, 4)) == (1, [4])
    assert looked_up(row(4)) == (0, [])


def test_a_row_that_grows_is_indexed_as_if_it_had_always_been_so_long() -> None:
    sequence = row(1, 2, 3)
    index = SuffixIndex()
    for token in (1, 2, 7, 1, 2):
        index.extend(sequence)
        sequence.commit([token])
    index.extend(sequence)
    assert index.continuation(sequence, 4) == looked_up(sequence, 4)


def test_chances_are_learned_by_depth() -> None:
    chance = Chance(0.5, 0.5)
    assert chance.joint(3) == pytest.approx([0.5, 0.25, 0.125])
    for _ in range(1000):
        chance.learn(accepted=2, drafted=5)
    first, second, third, fourth = chance.joint(4)
    assert first > 0.98
    assert second > 0.97
    assert third < 0.01
    # nothing was seen of what comes after a rejected one
    assert fourth == pytest.approx(third / 2)


def test_a_fixed_k_may_be_larger_than_any_that_auto_considers() -> None:
    draft = LookupDraft()
    repeated = row(*range(20, 40), *range(20, 24))
    layout: Any = SimpleNamespace(rows=[repeated])
    assert draft.draft_up_to(layout, [14]).counts == [14]
    draft.learn(layout, repeated, accepted=14, drafted=14)
    assert draft._chances[3].joint(14)[-1] > Chance(*FIRST_GUESS[3]).joint(14)[-1]


def test_what_was_not_drafted_teaches_nothing() -> None:
    chance = Chance(0.5, 0.5)
    for _ in range(1000):
        chance.learn(accepted=2, drafted=2)
    assert chance.joint(3)[2] == pytest.approx(0.5, abs=0.02)


def test_a_table_says_what_followed_most_often_longest_context_first() -> None:
    table = NgramTable.count([[1, 2, 3]] * 4 + [[9, 2, 5]] * 3)

    def tokens(context: list[int], count: int) -> list[int]:
        return [token for token, _ in table.follow(context, count)]

    assert tokens([1, 2], 1) == [3]
    assert tokens([9, 2], 1) == [5]
    assert tokens([7, 2], 1) == [3]
    assert tokens([1], 2) == [2, 3]
    assert tokens([42], 3) == []


def test_what_was_seen_once_is_no_ngram() -> None:
    assert len(NgramTable.count([[1, 2, 3, 4]])) == 0


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    table = NgramTable.count([[1, 2, 3, 4, 5]] * 3)
    file = tmp_path / "a.ngram.safetensors"
    table.save(file)
    again = NgramTable.load(file, vocabulary=40)
    assert again.entries.keys() == table.entries.keys()
    for context, (token, share) in table.entries.items():
        assert again.entries[context][0] == token
        assert again.entries[context][1] == pytest.approx(share, abs=1 / 255)


def test_a_table_of_another_target_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.ngram.safetensors"
    NgramTable.count([[1, 2, 300]] * 3).save(file)
    with pytest.raises(UserError, match="another target"):
        NgramTable.load(file, vocabulary=40)
    file.write_bytes(b"rubbish")
    with pytest.raises(UserError, match="cannot read"):
        NgramTable.load(file, vocabulary=40)


@pytest.mark.parametrize("draft_tokens", [5, "auto"])
@pytest.mark.parametrize("method", CORRECT_METHODS)
def test_ngrams_change_the_speed_and_not_the_text(method: str, draft_tokens: int | str) -> None:
    plain = replace(tiny_pair(), draft=None)
    prompts = mixed_prompts(6, seed=3)
    answers = list(Oracle(plain).answers(prompts, Settings(max_new_tokens=24)))
    written = [[*p.ids, *a.output_ids] for p, a in zip(prompts, answers, strict=True)]
    pair = replace(plain, ngrams=NgramTable.count(written * 2))
    settings = Settings(
        method=method,
        batch_size=3,
        draft_tokens=draft_tokens,  # type: ignore[arg-type]
        max_new_tokens=24,
    )
    *_, summary = Run(pair, settings, prompts).records()
    assert isinstance(summary, Summary)
    assert [r.output_ids for r in summary.rows] == [a.output_ids for a in answers]
    if method in ("eqspec", "slotspec", "exspec"):
        assert summary.totals.accepted_per_row_round > 0.5


def test_ngrams_are_lossless_under_sampling_too() -> None:
    """The draws are keyed by position, so certain draft tokens cannot change the first token."""
    plain = replace(tiny_pair(), draft=None)
    prompts = mixed_prompts(40, seed=3)
    sampling = Sampling(temperature=1.0, seed=5)
    settings = Settings(method="slotspec", batch_size=8, max_new_tokens=12, sampling=sampling)
    *_, summary = Run(plain, settings, prompts).records()
    assert isinstance(summary, Summary)
    assert any(r.drafted for r in summary.rows)
    *_, again = Run(plain, settings, prompts).records()
    assert isinstance(again, Summary)
    assert [r.output_ids for r in summary.rows] == [r.output_ids for r in again.rows]


def test_the_command_makes_a_table(tmp_path: Path) -> None:
    data = tmp_path / "own.safetensors"
    tokens = np.array([1, 2, 3, 4, 1, 2, 3, 4], np.int32)
    save_file({"tokens": tokens, "offsets": np.array([0, 4, 8], np.int32)}, data)
    out = tmp_path / "own.ngram.safetensors"
    result = CliRunner().invoke(ngram, ["--data", str(data), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert [token for token, _ in NgramTable.load(out, 40).follow([1], 3)] == [2, 3, 4]


def test_a_ngram_that_is_not_accepted_is_drafted_less_and_less() -> None:
    """How common it is elsewhere is a first guess only."""
    draft = NgramDraft(NgramTable({(5,): (6, 0.6)}))
    row = Sequence(prompts_of([[4, 5]])[0], budget=9, context=64, eos_ids=frozenset())
    assert draft.ngram(row, 3, 0.3).tokens == [6]
    layout: Any = None
    for _ in range(12):
        draft._made[row.index] = draft.ngram(row, 3, 0.0)
        draft.learn(layout, row, accepted=0, drafted=1)
    assert draft.ngram(row, 3, 0.3).tokens == []
