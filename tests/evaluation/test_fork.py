"""A fork: two lanes with one past, and what each of them goes on to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import chain

import msgspec
import pytest
from msgspec.structs import replace

from engine.config.settings import Sampling, Settings
from engine.evaluation.fork import ORIGINAL, Branch, Fork
from engine.records.schema import (
    ChangeRecord,
    Failure,
    LaneRecord,
    OracleRecord,
    Record,
    RoundRecord,
    RunHeader,
    Summary,
    TickRecord,
)
from engine.runs.intervene import change
from engine.runs.run import Run
from tests.tiny import finished, mixed_prompts, tiny_pair
from tui.view.sentences import change_words
from tui.view.state.compare import Comparison

SETTINGS = Settings(method="eqspec", batch_size=3, draft_tokens=3, max_new_tokens=20)
PROMPTS = mixed_prompts(5, seed=3)


class Forked:
    """A run that is forked, with its records sorted."""

    def __init__(self, number: int, now: Settings, *, made: int, was: Settings = SETTINGS) -> None:
        run = Run(tiny_pair(), was, PROMPTS)
        stream = run.records()
        header = next(stream)
        assert isinstance(header, RunHeader)
        past: list[LaneRecord] = [next(stream) for _ in range(made)]  # type: ignore[misc]
        self.asked = 0
        branch = Branch(header, past, self._more(stream), number, was, now)
        self.records = list(Fork(tiny_pair(), branch).records())

    def _more(self, stream: Iterator[Record]) -> Iterator[LaneRecord]:
        for record in stream:
            self.asked += 1
            yield record  # type: ignore[misc]

    def rounds(self, lane: int) -> list[RoundRecord]:
        return [r for r in self.records if isinstance(r, RoundRecord) and r.lane == lane]

    def outputs(self, lane: int) -> list[tuple[int, ...]]:
        (summary,) = (r for r in self.records if isinstance(r, Summary) and r.lane == lane)
        return [row.output_ids for row in summary.rows]


def alone(settings: Settings) -> list[tuple[int, ...]]:
    return finished(
        tiny_pair(), PROMPTS, **{f: getattr(settings, f) for f in Settings.__struct_fields__}
    ).outputs


def same(first: RoundRecord, second: RoundRecord) -> bool:
    return replace(first, lane=0) == replace(second, lane=0)


@pytest.mark.parametrize("method", ["eqspec", "exspec", "slotspec", "rollback"])
def test_both_lanes_of_correct_methods_end_with_the_same_tokens(method: str) -> None:
    fork = Forked(2, replace(SETTINGS, method=method, draft_tokens=2), made=4)
    assert fork.outputs(0) == fork.outputs(1) == alone(SETTINGS)


def test_the_past_is_shared_and_the_original_goes_on_as_if_nobody_looked() -> None:
    fork = Forked(3, replace(SETTINGS, draft_tokens=1), made=5)
    first, second = fork.rounds(0), fork.rounds(1)
    assert all(same(*pair) for pair in zip(first[:3], second[:3], strict=True))
    assert [r.round for r in second] == list(range(1, len(second) + 1))
    assert not same(first[3], second[3])
    stand = {row.row: row.before for row in second[3].rows}
    assert all(stand[row.row] == row.before for row in first[3].rows)
    undisturbed = finished(tiny_pair(), PROMPTS, **msgspec.structs.asdict(SETTINGS)).rounds
    assert [r.rows for r in first] == [r.rows for r in undisturbed]


def test_the_original_is_asked_for_more_only_when_its_rounds_are_used_up() -> None:
    fork = Forked(1, SETTINGS, made=4)
    total = len(fork.rounds(0))
    assert fork.asked == total - 4 + 1  # and the summary


def test_the_second_lane_says_where_it_left_and_how() -> None:
    fork = Forked(2, replace(SETTINGS, method="slotspec", draft_tokens=1), made=3)
    headers = [r for r in fork.records if isinstance(r, RunHeader)]
    assert [(h.lane, h.lanes, h.fork, h.method) for h in headers] == [
        (0, 2, None, "eqspec"),
        (1, 2, 2, "eqspec"),
    ]
    (left,) = (r for r in fork.records if isinstance(r, ChangeRecord))
    assert (left.lane, left.round, left.method) == (1, 2, "slotspec")
    assert change_words(left) == "method = slotspec, K = 1"
    assert left.settings["draft_tokens"] == 1


def test_a_tick_is_a_round_of_each_lane_that_runs() -> None:
    fork = Forked(2, replace(SETTINGS, draft_tokens=0), made=2)
    ticks = [r for r in fork.records if isinstance(r, TickRecord)]
    assert [t.tick for t in ticks] == list(range(len(ticks)))
    last = [len(fork.rounds(lane)) for lane in (0, 1)]
    for tick in ticks:
        assert tick.rounds == {lane: min(tick.tick, last[lane]) for lane in (0, 1)}


def test_the_measure_is_what_the_original_wrote() -> None:
    fork = Forked(2, replace(SETTINGS, fault="rejected-kv-kept"), made=2)
    texts: dict[int, list[int]] = {}
    for record in fork.records:
        if isinstance(record, OracleRecord):
            assert record.name == ORIGINAL
            for row in record.rows:
                texts.setdefault(row.row, []).extend(row.output_ids)
    assert [tuple(texts[row]) for row in sorted(texts)] == fork.outputs(0)


def test_a_fork_before_the_first_round_begins_with_the_prompts() -> None:
    fork = Forked(0, replace(SETTINGS, method="exspec"), made=2)
    assert fork.rounds(1)[0].round == 1
    assert fork.outputs(1) == alone(SETTINGS)


def test_a_fork_of_sampling_goes_on_with_the_same_draws() -> None:
    was = replace(SETTINGS, sampling=Sampling(temperature=0.8, seed=4))
    fork = Forked(2, replace(was, batch_size=5), made=3, was=was)
    assert fork.outputs(0) == fork.outputs(1)


def test_what_was_changed_before_the_fork_is_in_both_lanes_and_later_changes_in_one() -> None:
    run = Run(tiny_pair(), SETTINGS, PROMPTS)
    stream = run.records()
    header = next(stream)
    assert isinstance(header, RunHeader)
    past: list[LaneRecord] = [next(stream), next(stream)]  # type: ignore[list-item]
    k2, k1 = replace(SETTINGS, draft_tokens=2), replace(SETTINGS, draft_tokens=1)
    past.append(change(run, k2))
    past += [next(stream), change(run, k1), next(stream)]  # type: ignore[list-item]
    more: Iterator[LaneRecord] = stream  # type: ignore[assignment]
    fork = Fork(tiny_pair(), Branch(header, past, more, 2, k2, k2))
    changes = [r for r in fork.records() if isinstance(r, ChangeRecord)]
    assert [(c.lane, c.round, change_words(c)) for c in changes] == [
        (0, 2, "K = 2"),
        (1, 2, "K = 2"),
        (1, 2, "nothing changed"),
        (0, 3, "K = 1"),
    ]


def test_a_lane_that_cannot_begin_is_reported_and_the_original_goes_on() -> None:
    pair = dataclasses.replace(tiny_pair(), draft=None)
    stream = Run(pair, SETTINGS, PROMPTS).records()
    header = next(stream)
    assert isinstance(header, RunHeader)
    more: Iterator[LaneRecord] = stream  # type: ignore[assignment]
    branch = Branch(header, [], more, 0, SETTINGS, replace(SETTINGS, method="bsp"))
    records = list(Fork(pair, branch).records())
    (failure,) = (r for r in records if isinstance(r, Failure))
    assert (failure.lane, failure.message) == (1, "bsp needs a draft model")
    assert isinstance(records[-2], Summary)


@pytest.mark.parametrize("pending", [True, False], ids=["to come", "recorded"])
@pytest.mark.parametrize("method", ["eqspec", "slotspec", "exspec"])
def test_where_the_original_goes_back_in_its_next_round_both_lanes_do(
    method: str, pending: bool
) -> None:
    """A fault that was switched off: under the same settings both lanes are the same."""
    was = replace(SETTINGS, method=method)
    run = Run(tiny_pair(), was, PROMPTS)
    stream = run.records()
    header = next(stream)
    assert isinstance(header, RunHeader)
    past: list[LaneRecord] = [next(stream), next(stream)]  # type: ignore[list-item]
    lengths = run.lengths()
    past += [next(stream), next(stream)]  # type: ignore[list-item]
    run.restart(was, lengths)
    if not pending:
        past += [next(stream), next(stream)]  # type: ignore[list-item]
    more: Iterator[LaneRecord] = stream  # type: ignore[assignment]
    records = list(Fork(tiny_pair(), Branch(header, past, more, 4, was, was)).records())
    first, second = (
        [r for r in records if isinstance(r, RoundRecord) and r.lane == lane] for lane in (0, 1)
    )
    assert first[4].back
    assert first[4].back == second[4].back
    assert [r.rows for r in first] == [r.rows for r in second]
    comparison = Comparison()
    for record in records:
        comparison.add(record)
    assert not any(takes[0].match.divergences for takes in comparison.lanes.values())


def test_a_second_lane_that_differs_is_compared_with_what_the_original_wrote_anew() -> None:
    run = Run(tiny_pair(), SETTINGS, PROMPTS)
    stream = run.records()
    header = next(stream)
    assert isinstance(header, RunHeader)
    past: list[LaneRecord] = [next(stream), next(stream)]  # type: ignore[list-item]
    run.restart(replace(SETTINGS, fault="rejected-kv-kept"))
    past += [next(stream) for _ in range(3)]  # type: ignore[misc]
    run.restart(SETTINGS, {prompt.index: len(prompt.ids) for prompt in PROMPTS})
    more: Iterator[LaneRecord] = stream  # type: ignore[assignment]
    now = replace(SETTINGS, draft_tokens=1)
    comparison = Comparison()
    for record in Fork(tiny_pair(), Branch(header, past, more, 3, now, now)).records():
        comparison.add(record)
    # the original goes back in round 6, two rounds after the lanes have diverged
    oracle = {row: tuple(track.output) for row, track in comparison.oracle.answers.items()}
    assert [oracle[row] for row in sorted(oracle)] == alone(SETTINGS)
    (take,) = comparison.lanes[1]
    trails = take.match.fold.rows
    differ = {row for row, trail in trails.items() if tuple(trail.output) != oracle[row]}
    assert set(take.match.divergences) == differ
    assert not comparison.lanes[0][0].match.divergences


def test_a_prompt_that_joins_before_the_next_round_joins_both_lanes() -> None:
    run = Run(tiny_pair(), SETTINGS, PROMPTS[:4])
    stream = run.records()
    header = next(stream)
    assert isinstance(header, RunHeader)
    past: list[LaneRecord] = [next(stream), next(stream)]  # type: ignore[list-item]
    run.join(PROMPTS[4])
    joins = ChangeRecord(round=2, kind="prompts", method="eqspec", prompts=PROMPTS[4:])
    more: Iterator[LaneRecord] = chain([joins], stream)  # type: ignore[list-item]
    records = list(Fork(tiny_pair(), Branch(header, past, more, 2, SETTINGS, SETTINGS)).records())
    first, second = (r for r in records if isinstance(r, Summary))
    assert [row.output_ids for row in first.rows] == [row.output_ids for row in second.rows]
    assert len(second.rows) == 5
