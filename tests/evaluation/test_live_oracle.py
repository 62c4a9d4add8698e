"""A single run with the oracle beside it: a breakpoint holds where a row leaves it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.config.settings import Settings
from engine.evaluation.oracle import Oracle
from engine.evaluation.watched_run import with_oracle
from engine.microscope.breakpoints import parse_breakpoint
from engine.microscope.watch import Watch
from engine.pairs.load import Pair, load_pair
from engine.pairs.registry import PairRequest
from engine.records.schema import OracleRecord, RoundRecord
from engine.runs.intervene import add_prompt, change
from engine.runs.run import Run
from engine.text.prompts import PromptEntry, encode_prompts


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair(PairRequest(name="toy"), device="cpu")


def run_of(pair: Pair, method: str) -> Run:
    entries = [PromptEntry(text=text) for text in ("the river", "a small boat and the sea", "no")]
    prompts = encode_prompts(entries, pair.tokenizer, None, pair.info.context)
    return Run(pair, Settings(method=method, max_new_tokens=20), prompts)


@pytest.mark.parametrize(("method", "right"), [("eqspec", True), ("dsd", False)])
def test_it_holds_where_a_row_leaves_the_oracle_and_nowhere_else(
    pair: Pair, method: str, right: bool
) -> None:
    watch = Watch([parse_breakpoint("diverge")])
    run = run_of(pair, method)
    stream = list(with_oracle(run, run.records(), lambda: True, lambda: Oracle(pair)))
    for record in stream:
        watch(record)
    assert (watch.hits == []) is right
    assert len({hit.row for hit in watch.hits}) == len(watch.hits)
    rounds = [one for one in stream if isinstance(one, RoundRecord)]
    assert sum(isinstance(one, OracleRecord) for one in stream) <= len(rounds)


def test_the_oracle_is_not_asked_unless_it_is_wanted(pair: Pair) -> None:
    def never() -> Oracle:
        raise AssertionError("nobody wanted to know")

    run = run_of(pair, "eqspec")
    stream = list(with_oracle(run, run.records(), lambda: False, never))
    assert not any(isinstance(one, OracleRecord) for one in stream)


def test_an_oracle_that_is_wanted_later_catches_up(pair: Pair) -> None:
    seen = 0

    def later() -> bool:
        nonlocal seen
        seen += 1
        return seen > 4

    watch = Watch([parse_breakpoint("diverge")])
    run = run_of(pair, "dsd")
    for record in with_oracle(run, run.records(), later, lambda: Oracle(pair)):
        watch(record)
    assert watch.hits


def test_every_header_of_a_run_names_the_tokens_of_its_prompts(pair: Pair) -> None:
    run = run_of(pair, "eqspec")
    first = run.header()
    again = next(run.records())
    assert again == first
    assert set(first.pieces) == {token for prompt in first.prompts for token in prompt.ids}


@pytest.mark.parametrize("method", ["eqspec", "dsd"])
def test_a_run_that_was_changed_on_the_way_is_watched_on(pair: Pair, method: str) -> None:
    """A prompt more, another K, a greater budget, and on after the end."""
    watch = Watch([parse_breakpoint("diverge")])
    run = run_of(pair, "eqspec")
    begun = with_oracle(run, run.records(), lambda: True, lambda: Oracle(pair))
    for _ in range(4):
        watch(next(begun))
    for records in (
        add_prompt(run, "one more", chat=False),
        change(run, replace(run.settings, draft_tokens=2, max_new_tokens=24)),
    ):
        watch(records)
    for record in begun:
        watch(record)
    assert watch.hits == []
    run.restart(replace(run.settings, max_new_tokens=40, method=method), run.lengths())
    going_on = with_oracle(run, run.remaining(), lambda: True, lambda: Oracle(pair))
    rows = set()
    for record in going_on:
        watch(record)
        if isinstance(record, OracleRecord):
            rows |= {row.row for row in record.rows}
    assert 3 in rows, "the prompt that joined is compared as well"
    assert bool(watch.hits) is (method == "dsd")
