"""The fault lab: each fault is really executed, and the invariants find it."""

from __future__ import annotations

import random
import re
from functools import lru_cache
from typing import Any

import pytest

from engine.config.errors import UserError
from engine.config.faults import FAULTS
from engine.config.settings import Sampling, Settings
from engine.methods.faulty import SEAMS
from engine.records.row import Span
from engine.records.schema import RoundRecord
from engine.runs.run import Run
from tests.tiny import VOCABULARY, Finished, finished, mixed_prompts, prompts_of, tiny_pair
from tui.view.sentences import violation_words

SEEDS = range(6)


def case(seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """A pair, prompts and settings that vary with the seed; some ends, some pads in the text."""
    chance = random.Random(seed)
    kind = ("llama", "gpt2")[seed % 2]
    pad_id = (2, 7)[seed // 2 % 2]
    pair = tiny_pair(kind, seed=seed, eos_ids=(2, 5, 9, 11), pad_id=pad_id)
    prompts = [list(prompt.ids) for prompt in mixed_prompts(5, seed=seed, longest=14)]
    prompts[seed % 5].insert(0, pad_id)
    settings = {
        "method": "eqspec",
        "batch_size": chance.choice((3, 4)),
        "draft_tokens": 1 + seed % 5,
        "max_new_tokens": 18,
    }
    return pair, prompts_of(prompts), settings


@lru_cache
def healthy(seed: int) -> Finished:
    pair, prompts, settings = case(seed)
    return finished(pair, prompts, **settings)


def first_broken(run: Finished) -> set[str]:
    """The invariants of the first round in which anything is broken."""
    begin = min((number for number, _ in run.violations), default=0)
    return {violation.invariant for number, violation in run.violations if number == begin}


def test_every_fault_has_a_seam_and_words() -> None:
    assert list(FAULTS) == list(SEAMS)
    for name, fault in FAULTS.items():
        assert name == fault.name
        assert fault.title
        assert len(fault.text) > 150
        assert fault.breaks


@pytest.mark.parametrize("name", FAULTS)
def test_the_invariant_that_is_said_to_break_is_the_one_that_fires(name: str) -> None:
    fault = FAULTS[name]
    fired = 0
    for seed in SEEDS:
        pair, prompts, settings = case(seed)
        assert healthy(seed).violations == []
        faulty = finished(pair, prompts, **settings, fault=name)
        broken = {violation.invariant for _, violation in faulty.violations}
        assert broken <= set(fault.breaks)
        if broken:
            fired += 1
            assert fault.breaks[0] in first_broken(faulty)
        for row, (ids, right) in enumerate(zip(faulty.outputs, healthy(seed).outputs, strict=True)):
            if ids != right:  # no row goes wrong unnoticed
                assert any(v.row == row for _, v in faulty.violations), (seed, row)
    assert fired >= len(SEEDS) // 2


@pytest.mark.parametrize("name", FAULTS)
def test_the_faulty_row_is_shown_as_it_is(name: str) -> None:
    """The cells fill the rectangle, and hold each committed token once."""
    pair, prompts, settings = case(2)
    run = finished(pair, prompts, **settings, fault=name)
    kinds = set()
    for record in run.rounds:
        for row in record.rows:
            if row.finish_reason is None:
                assert sum(span.length for span in row.kept) == record.length
            for spans, total in ((row.fed, row.before), (row.kept, row.content)):
                assert own_tokens(spans) == list(range(total))
            kinds |= {span.kind for span in (*row.fed, *row.kept)}
    assert ("ghost" in kinds) == (name in ("positions-not-rebuilt", "kv-not-realigned"))


def own_tokens(spans: tuple[Span, ...]) -> list[int]:
    own = [span for span in spans if span.kind in ("content", "ghost")]
    return [index for span in own for index in range(span.first, span.first + span.length)]


def test_a_sampled_bonus_of_the_draft_is_noticed() -> None:
    pair, prompts, settings = case(3)
    settings |= {"sampling": Sampling(temperature=1.0, seed=1), "draft_tokens": 3}
    assert finished(pair, prompts, **settings).violations == []
    run = finished(pair, prompts, **settings, fault="bonus-from-draft")
    assert {violation.invariant for _, violation in run.violations} == {"I5"}


def test_faults_belong_to_eqspec() -> None:
    with pytest.raises(UserError, match="unknown fault"):
        Settings(fault="gremlins").check()
    with pytest.raises(UserError, match="eqspec"):
        Settings(method="slotspec", fault="eos-ignored").check()


# ---- going back ------------------------------------------------------------------------


def play(run: Run, rounds: int) -> list[RoundRecord]:
    """Some more rounds of a run."""
    records = []
    for record in run.remaining():
        if not isinstance(record, RoundRecord):
            break
        records.append(record)
        if len(records) == rounds:
            break
    return records


@pytest.mark.parametrize("name", FAULTS)
def test_switching_a_fault_off_goes_back_to_before_it_went_on(name: str) -> None:
    pair, prompts, settings = case(1)
    right = healthy(1).outputs
    run = Run(pair, Settings(**settings), prompts)
    rounds = play(run, 2)
    before = run.lengths()
    run.restart(Settings(**settings, fault=name))
    rounds += play(run, 4)
    run.restart(Settings(**settings), before)
    assert run.lengths() == before
    after = play(run, 999)
    rounds += after
    assert [row.output_ids for row in run.summary().rows] == right
    assert not any(record.violations for record in after)
    assert [record.round for record in rounds] == list(range(1, len(rounds) + 1))
    # whoever adds up the records, and drops what was undone, has the outputs
    texts: dict[int, list[int]] = {prompt.index: list(prompt.ids) for prompt in prompts}
    for record in rounds:
        for row in record.rows:
            del texts[row.row][row.before :]
            texts[row.row] += row.committed
    for prompt, ids in zip(prompts, right, strict=True):
        assert texts[prompt.index] == [*prompt.ids, *ids]


def test_the_method_may_change_between_rounds() -> None:
    pair, prompts, settings = case(0)
    right = healthy(0).outputs
    run = Run(pair, Settings(**settings), prompts)
    rounds = []
    for method in ("slotspec", "rollback", "exspec", "eqspec", "slotspec"):
        run.restart(Settings(**{**settings, "method": method, "draft_tokens": 2}))
        rounds += play(run, 1)
    rounds += play(run, 999)
    assert [row.output_ids for row in run.summary().rows] == right
    assert not any(record.violations for record in rounds)


@pytest.mark.parametrize("method", ["bsp", "dsd"])
def test_a_baseline_can_be_taken_back_to_a_correct_method(method: str) -> None:
    pair, prompts, settings = case(2)
    right = healthy(2).outputs
    run = Run(pair, Settings(**settings), prompts)
    play(run, 2)
    before = run.lengths()
    run.restart(Settings(**{**settings, "method": method}))
    assert any(record.violations for record in play(run, 6))
    run.restart(Settings(**settings), before)
    play(run, 999)
    assert [row.output_ids for row in run.summary().rows] == right


# ---- nothing fires without a fault --------------------------------------------------------


@pytest.mark.slow
def test_with_all_faults_off_nothing_fires_in_a_thousand_runs() -> None:
    chance = random.Random(0)
    pairs = [
        tiny_pair(kind, layers=1, seed=seed, noise=noise, eos_ids=(2, 5), pad_id=pad_id)
        for kind, seed, noise, pad_id in (
            ("llama", 0, 0.03, 2),
            ("llama", 1, 0.3, 7),
            ("gpt2", 2, 0.0, 2),
            ("gpt2", 3, 0.02, 0),
        )
    ]
    for number in range(1000):
        rows = [
            [chance.randrange(VOCABULARY) for _ in range(chance.randrange(1, 8))]
            for _ in range(chance.randrange(1, 4))
        ]
        run = finished(
            chance.choice(pairs),
            prompts_of(rows),
            method=chance.choice(("eqspec", "eqspec", "exspec", "rollback", "slotspec")),
            batch_size=chance.randrange(1, 5),
            draft_tokens=chance.randrange(1, 5),
            max_new_tokens=chance.randrange(1, 6),
            sampling=Sampling(temperature=chance.choice((0.0, 0.0, 0.8)), seed=number),
        )
        assert run.violations == [], number


@pytest.mark.parametrize("name", ["kv-not-realigned", "positions-not-rebuilt"])
def test_a_fault_of_the_cache_says_whose_slot_it_is(name: str) -> None:
    pair, prompts, settings = case(2)
    run = finished(pair, prompts, **settings, fault=name)
    messages = [violation_words(found) for _, found in run.violations if found.invariant == "I3"]
    assert messages
    for message in messages:
        assert re.match(r"cache slot \d+ of the (target|draft) ", message)


def test_one_is_not_many() -> None:
    """No message says `1 cells`, `1 more follow` or the like."""
    for name in FAULTS:
        for seed in (1, 2):
            pair, prompts, settings = case(seed)
            for _, found in finished(pair, prompts, **settings, fault=name).violations:
                assert not re.search(r"(?<!\d)1 (\w+s |more follow\b)", violation_words(found)), (
                    found
                )
