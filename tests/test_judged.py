"""A single run with the oracle beside it: a breakpoint holds where a row leaves it."""

from __future__ import annotations

import pytest

from engine.breakpoints import parse_breakpoint
from engine.judged import judged
from engine.oracle import Oracle
from engine.pairs.load import Pair, load_pair
from engine.pairs.registry import PairRequest
from engine.prompts import PromptEntry, encode_prompts
from engine.records import OracleRecord, RoundRecord
from engine.run import Run
from engine.settings import Settings
from engine.watch import Watch


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
    stream = list(judged(run, lambda: True, lambda: Oracle(pair)))
    for record in stream:
        watch(record)
    assert (watch.hits == []) is right
    assert len({hit.row for hit in watch.hits}) == len(watch.hits)
    rounds = [one for one in stream if isinstance(one, RoundRecord)]
    assert sum(isinstance(one, OracleRecord) for one in stream) <= len(rounds)


def test_the_oracle_is_not_asked_unless_it_is_wanted(pair: Pair) -> None:
    def never() -> Oracle:
        raise AssertionError("nobody wanted to know")

    stream = list(judged(run_of(pair, "eqspec"), lambda: False, never))
    assert not any(isinstance(one, OracleRecord) for one in stream)


def test_an_oracle_that_is_wanted_later_catches_up(pair: Pair) -> None:
    seen = 0

    def later() -> bool:
        nonlocal seen
        seen += 1
        return seen > 4

    watch = Watch([parse_breakpoint("diverge")])
    for record in judged(run_of(pair, "dsd"), later, lambda: Oracle(pair)):
        watch(record)
    assert watch.hits


def test_every_header_of_a_run_names_the_tokens_of_its_prompts(pair: Pair) -> None:
    run = run_of(pair, "eqspec")
    first = run.header()
    again = next(run.records())
    assert again == first
    assert set(first.pieces) == {token for prompt in first.prompts for token in prompt.ids}
