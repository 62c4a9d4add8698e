"""A row's own text where it repeats itself, a draft model elsewhere."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.config.settings import Sampling, Settings
from engine.drafting.hybrid import WORTH, merged
from engine.drafting.ngram_table import NgramTable
from engine.drafting.prompt_lookup import LONGEST, Chance, NgramDraft
from engine.evaluation.oracle import Oracle
from engine.records.schema import RoundRecord, Summary
from engine.rounds.draft_model import DraftTokens
from engine.rounds.sequence import Sequence
from engine.runs.intervene import force
from engine.runs.run import Run
from tests.cases import SPECULATIVE
from tests.tiny import prompts_of, tiny_pair

REPEATS = [5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6, 7]


PROMPTS = prompts_of([REPEATS, [30, 11, 4, 21], [*REPEATS, 8], [12]])


def run(method: str, **settings: object) -> tuple[list[RoundRecord], Summary]:
    chosen = {"batch_size": 4, "draft_tokens": 3, "max_new_tokens": 24, "prompt_lookup": True}
    *records, summary = Run(
        tiny_pair(),
        Settings(method=method, **(chosen | settings)),  # type: ignore[arg-type]
        PROMPTS,
    ).records()
    assert isinstance(summary, Summary)
    return [record for record in records if isinstance(record, RoundRecord)], summary


@pytest.mark.parametrize("draft_tokens", [3, "auto"])
@pytest.mark.parametrize("method", SPECULATIVE)
def test_outputs_stay_the_targets(method: str, draft_tokens: object) -> None:
    rounds, summary = run(method, draft_tokens=draft_tokens, audit=True)
    answers = Oracle(tiny_pair()).answers(PROMPTS, Settings(max_new_tokens=24))
    assert [r.output_ids for r in summary.rows] == [a.output_ids for a in answers]
    assert not [violation for record in rounds for violation in record.violations]


def test_a_row_that_repeats_itself_drafts_its_prompt_lookup() -> None:
    rounds, _ = run("eqspec")
    first = {row.row: row.draft_token_ids for row in rounds[0].rows}
    assert first[0] == (8, 9, 5)
    assert first[2] == (9, 5, 6)
    alone, _ = run("eqspec", prompt_lookup=False)
    without = {row.row: row.draft_token_ids for row in alone[0].rows}
    assert {row.row for row in rounds[0].rows if row.by_text} == {0, 2}
    assert (first[1], first[3]) == (without[1], without[3])
    assert (first[0], first[2]) != (without[0], without[2])


def test_ngrams_are_drafted_where_they_are_all_but_sure() -> None:
    table = NgramTable({(21,): (33, 0.9), (33,): (34, 0.4), (12,): (35, 0.4)})
    pair = replace(tiny_pair(), ngrams=table)
    settings = Settings(method="eqspec", draft_tokens=3, max_new_tokens=8, prompt_lookup=True)
    first = next(r for r in Run(pair, settings, PROMPTS).records() if isinstance(r, RoundRecord))
    drafted = {row.row: row.draft_token_ids for row in first.rows}
    assert drafted[1] == (33,), "the n-gram goes on, but that is no longer likely"
    assert drafted[3][:1] != (35,), "the draft model is asked instead"


def test_what_no_model_drew_is_certain() -> None:
    certain = DraftTokens(torch.tensor([[4, 2], [0, 0]]), [2, 0], texts=(0,))
    drawn = DraftTokens(torch.tensor([[0], [3]]), [0, 1], torch.full((2, 1, 5), 0.2))
    both = merged(certain, drawn)
    assert both.counts == [2, 1]
    assert both.tokens[0].tolist() == [4, 2]
    assert int(both.tokens[1, 0]) == 3
    assert both.probs is not None
    assert both.probs[0].argmax(-1).tolist() == [4, 2]
    assert both.probs[0].max(-1).values.tolist() == [1.0, 1.0]
    assert both.probs[1, 0].tolist() == pytest.approx([0.2] * 5)
    assert both.texts == (0,)


def test_sampling_and_the_inspector_see_who_drafted() -> None:
    rounds, _ = run("slotspec", sampling=Sampling(temperature=0.8), inspect=True)
    tests = [row.tests for row in rounds[0].rows]
    by_row = dict(zip((row.row for row in rounds[0].rows), tests, strict=True))
    assert [test.draft_prob for test in by_row[0]] == [1.0] * len(by_row[0])
    assert all(0.0 < test.draft_prob < 1.0 for test in by_row[1])


@pytest.mark.parametrize("draft_tokens", [3, "auto"])
def test_a_token_given_by_hand_comes_before_text(draft_tokens: Any) -> None:
    settings = Settings(
        method="eqspec",
        draft_tokens=draft_tokens,
        max_new_tokens=8,
        prompt_lookup=True,
        inspect=True,
    )
    run = Run(tiny_pair(), settings, PROMPTS)
    run.loop.step()  # `auto` measures first what a round without draft tokens costs
    row = next(row for row in run.rows if row.running)
    force(run, row.index, "#33")
    record = run.loop.step()
    assert record is not None
    entry = next(entry for entry in record.rows if entry.row == row.index)
    assert record.draft_tokens > 0
    assert entry.draft_token_ids[0] == 33
    assert not entry.by_text


def test_a_match_that_is_not_drafted_teaches_nothing() -> None:
    """What then became of a n-gram would be counted as the match's own."""
    text = NgramDraft(NgramTable({(7,): (33, 0.9)}))
    row = Sequence(prompts_of([REPEATS])[0], budget=9, context=64, eos_ids=frozenset())
    layout: Any = SimpleNamespace(rows=[row])
    assert text.draft_up_to(layout, [3], WORTH).tokens[0, 0] == 8
    text._chances[LONGEST] = Chance(0.3, 0.5)
    before = text._chances[LONGEST].joint(8)
    for _ in range(40):
        drafted = text.draft_up_to(layout, [3], WORTH)
        assert drafted.tokens[0, 0] == 33, "the match is unsure"
        text.learn(layout, row, accepted=1, drafted=1)
    assert text._chances[LONGEST].joint(8) == before
