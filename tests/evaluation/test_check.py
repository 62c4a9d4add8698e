"""Another engine's tokens against the oracle: rates, first differences, tested causes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from engine.config.settings import Settings
from engine.evaluation.check.check import CheckResult, check
from engine.evaluation.check.outputs import Foreign, ForeignRow, read_foreign
from engine.evaluation.check.rescore import Probe, Reading
from engine.evaluation.oracle import Oracle
from engine.pairs.load import Pair, load_pair
from engine.pairs.registry import PairRequest
from engine.records.schema import Prompt
from engine.records.trace import TraceWriter
from engine.runs.run import Run
from engine.text.prompts import PromptEntry, encode_prompts
from tui.view.check_words import cause_words
from tui.view.panes.check import detail_lines, entries, entry_line
from tui.view.state.checked import Checked

BUDGET = 24
SETTINGS = Settings(max_new_tokens=BUDGET)
TEXTS = ("the river and the boat", "a small house", "old stone bridge in the quiet rain, far")
Read = Callable[[tuple[int, ...], int], tuple[Sequence[int], Sequence[int]]]
"""Tokens so far and the prompt's length → ids and positions as the engine feeds them."""


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair(PairRequest(name="toy"), device="cpu", dtype="float64")


@pytest.fixture(scope="module")
def prompts(pair: Pair) -> tuple[Prompt, ...]:
    entries = [PromptEntry(text=text) for text in TEXTS]
    return encode_prompts(entries, pair.tokenizer, None, pair.info.context)


@pytest.fixture(scope="module")
def right(pair: Pair, prompts: tuple[Prompt, ...]) -> list[tuple[int, ...]]:
    """The oracle's answers."""
    return [answer.output_ids for answer in Oracle(pair).answers(prompts, SETTINGS)]


def foreign(prompts: Sequence[Prompt], outputs: Sequence[Sequence[int]], end: str = "") -> Foreign:
    return Foreign(
        rows=tuple(
            ForeignRow(
                prompt=PromptEntry(ids=prompt.ids), output_ids=tuple(output), finish_reason=end
            )
            for prompt, output in zip(prompts, outputs, strict=True)
        )
    )


def checked(
    pair: Pair, prompts: Sequence[Prompt], outputs: Sequence[Sequence[int]], end: str = ""
) -> CheckResult:
    return check(pair, SETTINGS, prompts, foreign(prompts, outputs, end))


def decoded(pair: Pair, prompts: Sequence[Prompt], read: Read) -> list[list[int]]:
    """What an engine writes that feeds its rows in this way."""
    probe = Probe(pair.target, pair.lease)
    outputs = []
    for prompt in prompts:
        tokens = prompt.ids
        for _ in range(BUDGET):
            ids, positions = read(tokens, len(prompt.ids))
            reading = Reading("", "", tuple(ids), tuple(positions))
            tokens = (*tokens, int(probe.logits([reading])[0][-1].argmax()))
        outputs.append(list(tokens[len(prompt.ids) :]))
    return outputs


def test_equal_tokens_are_exact(
    pair: Pair, prompts: tuple[Prompt, ...], right: list[tuple[int, ...]]
) -> None:
    result = checked(pair, prompts, right)
    assert (result.exact, result.total, result.exact_rate, result.partial_rate) == (3, 3, 1.0, 1.0)
    assert result.divergences == ()
    assert result.causes == {}


def test_a_row_that_ends_early_was_stopped_unless_its_budget_was_used_up(
    pair: Pair, prompts: tuple[Prompt, ...], right: list[tuple[int, ...]]
) -> None:
    short = [right[0], right[1][:12], right[2]]
    result = checked(pair, prompts, short)
    assert result.causes == {"stopped": 1}
    assert (result.divergences[0].index, result.divergences[0].position) == (1, 12)
    assert result.divergences[0].got is None
    assert checked(pair, prompts, short, end="length").exact == 3


def test_a_row_that_goes_on_after_eos(
    pair: Pair,
    prompts: tuple[Prompt, ...],
    right: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pair.tokenizer, "eos_ids", (right[0][6],))
    result = checked(pair, prompts[:1], right[:1])
    assert result.causes == {"past_end": 1}
    assert result.divergences[0].expected is None
    assert (result.exact, result.cut_at_eos.exact) == (0, 1)


def test_a_row_that_is_filled_up_after_its_end_is_cut_there(
    pair: Pair,
    prompts: tuple[Prompt, ...],
    right: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end = right[0][6]
    monkeypatch.setattr(pair.tokenizer, "eos_ids", (end,))
    output = [*right[0][:7], *[end] * 5]
    result = checked(pair, prompts[:1], [output])
    assert result.exact == 1
    assert "nothing but padding after their end, which is left out: 1" in result.notices[0]


@pytest.mark.parametrize("count", [1, 3])
def test_tokens_that_stand_twice_or_are_missing(
    pair: Pair, prompts: tuple[Prompt, ...], right: list[tuple[int, ...]], count: int
) -> None:
    row = list(right[0])
    twice = [*row[:10], *row[10 - count : 10], *row[10:]][:BUDGET]
    result = checked(pair, prompts, [twice, *right[1:]])
    assert result.causes == {"repeated": 1}
    assert "the oracle's again" in cause_words(result.divergences[0])
    missing = row[:10] + row[10 + count :]
    result = checked(pair, prompts, [missing, *right[1:]])
    assert result.causes == {"missing": 1}


def test_positions_that_jump_are_named_with_the_jump(
    pair: Pair, prompts: tuple[Prompt, ...]
) -> None:
    def read(tokens: tuple[int, ...], prompt: int) -> tuple[Sequence[int], Sequence[int]]:
        return tokens, [at + 3 * (at >= prompt) for at in range(len(tokens))]

    result = checked(pair, prompts, decoded(pair, prompts, read))
    assert set(result.causes) == {"positions"}
    for cause in result.divergences:
        assert "positions of all new tokens 3 too high" in cause_words(cause)
        assert cause.explained == cause.of
        assert (cause.of or 0) >= 3


def test_a_token_in_front_that_does_not_belong_there(
    pair: Pair, prompts: tuple[Prompt, ...]
) -> None:
    bos = pair.tokenizer.bos_id
    assert bos is not None

    def read(tokens: tuple[int, ...], prompt: int) -> tuple[Sequence[int], Sequence[int]]:
        ids = tokens[1:] if tokens[0] == bos else (bos, *tokens)
        return ids, range(len(ids))

    result = checked(pair, prompts, decoded(pair, prompts, read))
    assert result.divergences
    assert set(result.causes) == {"prompt"}


def test_padding_that_is_attended_to(pair: Pair, prompts: tuple[Prompt, ...]) -> None:
    longest = max(len(prompt.ids) for prompt in prompts)

    def read(tokens: tuple[int, ...], prompt: int) -> tuple[Sequence[int], Sequence[int]]:
        ids = (*[pair.tokenizer.pad_id] * (longest - prompt), *tokens)
        return ids, range(len(ids))

    result = checked(pair, prompts, decoded(pair, prompts, read))
    assert set(result.causes) == {"padding"}
    assert {cause.index for cause in result.divergences} <= {
        prompt.index for prompt in prompts if len(prompt.ids) < longest
    }


def test_a_prompt_that_is_padded_on_the_right(pair: Pair, prompts: tuple[Prompt, ...]) -> None:
    longest = max(len(prompt.ids) for prompt in prompts)
    probe = Probe(pair.target, pair.lease)
    outputs = []
    for prompt in prompts:
        length, padding = len(prompt.ids), longest - len(prompt.ids)
        output: list[int] = []
        for step in range(BUDGET):
            ids = (*prompt.ids, *[pair.tokenizer.pad_id] * padding, *output)
            start = 1 if padding else length
            positions = (*range(length), *[0] * padding, *range(start, start + step))
            hidden = tuple(range(length, longest))
            logits = probe.logits([Reading("", "", ids, positions, hidden=hidden)])
            output.append(int(logits[0][-1].argmax()))
        outputs.append(output)
    result = checked(pair, prompts, outputs)
    assert set(result.causes) == {"padding"}
    assert all("begin again at 1" in cause_words(cause) for cause in result.divergences)


def test_what_nothing_explains_is_called_unexplained_with_its_rank(
    pair: Pair, prompts: tuple[Prompt, ...], right: list[tuple[int, ...]]
) -> None:
    odd = [*right[0][:5], (right[0][5] + 40) % 200, *right[0][6:]]
    result = checked(pair, prompts, [odd, *right[1:]])
    cause = result.divergences[0]
    assert cause.cause == "unexplained"
    assert cause.position == 5
    assert (cause.rank or 0) > 1
    assert f"choice no. {cause.rank}" in cause_words(cause)
    assert "wrong readings" in cause_words(cause)


def test_within_a_wide_tolerance_it_is_rounding(
    pair: Pair, prompts: tuple[Prompt, ...], right: list[tuple[int, ...]]
) -> None:
    odd = [*right[0][:5], (right[0][5] + 40) % 200]
    given = foreign(prompts, [odd, *right[1:]])
    result = check(pair, SETTINGS, prompts, given, tolerance=1e6)
    assert result.causes == {"numeric": 1}


@pytest.mark.parametrize(
    ("method", "causes"),
    [("slotspec", set()), ("bsp", {"invariant"}), ("dsd", {"invariant", "past_end"})],
)
def test_a_trace_is_checked_with_what_its_rounds_tell(
    pair: Pair, prompts: tuple[Prompt, ...], tmp_path: Path, method: str, causes: set[str]
) -> None:
    path = trace_of(pair, prompts, tmp_path / "t.jsonl.zst", method)
    found = read_foreign(path)
    assert found.pair == "toy"
    result = check(pair, SETTINGS, prompts, found)
    assert set(result.causes) <= causes
    assert bool(result.causes) is bool(causes)


def test_a_trace_that_names_no_invariant_is_explained_by_its_own_rounds(
    pair: Pair, prompts: tuple[Prompt, ...], tmp_path: Path
) -> None:
    found = read_foreign(trace_of(pair, prompts, tmp_path / "t.jsonl", "dsd"))
    bare = tuple(msgspec.structs.replace(record, violations=()) for record in found.rounds)
    result = check(pair, SETTINGS, prompts, msgspec.structs.replace(found, rounds=bare))
    assert "draft_token" in result.causes


def test_positions_that_a_trace_tells_are_tried_as_they_are(
    pair: Pair, prompts: tuple[Prompt, ...], tmp_path: Path
) -> None:
    found = read_foreign(trace_of(pair, prompts, tmp_path / "t.jsonl", "bsp"))
    bare = tuple(msgspec.structs.replace(record, violations=()) for record in found.rounds)
    result = check(pair, SETTINGS, prompts, msgspec.structs.replace(found, rounds=bare))
    assert "positions" in result.causes
    assert any("the trace tells" in cause_words(cause) for cause in result.divergences)


def trace_of(pair: Pair, prompts: Sequence[Prompt], path: Path, method: str) -> Path:
    settings = msgspec.structs.replace(SETTINGS, method=method)
    with TraceWriter(path) as writer:
        for record in Run(pair, settings, prompts).records():
            writer.write(record)
    return path


def test_rows_that_cannot_be_compared_count_in_no_rate(
    pair: Pair, prompts: tuple[Prompt, ...], right: list[tuple[int, ...]]
) -> None:
    result = checked(pair, prompts, [[99999], *right[1:]])
    assert (result.exact, result.total) == (2, 2)
    assert "outside the vocabulary" in result.errors[0]


@pytest.mark.parametrize("method", ["eqspec", "bsp"])
def test_a_trace_that_was_cut_off_is_checked_by_what_it_has(
    pair: Pair, prompts: tuple[Prompt, ...], tmp_path: Path, method: str
) -> None:
    """Wherever it is cut: no row was stopped, and none that has not begun counts."""
    trace = trace_of(pair, prompts, tmp_path / "t.jsonl", method)
    lines = trace.read_bytes().splitlines(keepends=True)
    whole = check(pair, SETTINGS, prompts, read_foreign(trace), tolerance=1e-6)
    differ = {one.index: one.position for one in whole.divergences}
    for count in (1, 2, len(lines) // 2):
        (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:count]))
        cut = read_foreign(tmp_path / "cut.jsonl")
        result = check(pair, SETTINGS, prompts, cut, tolerance=1e-6)
        begun = [index for index, row in enumerate(cut.rows) if row.output_ids]
        assert result.total == len(begun)
        assert "stopped" not in result.causes
        for found in result.divergences:
            assert found.position == differ[found.index] < len(cut.rows[found.index].output_ids)
        assert any("what is there is checked" in notice for notice in result.notices)
        assert any("had not begun" in one for one in result.notices) == (len(begun) < 3)
        assert any("as far as it goes" in one for one in result.notices) == bool(begun)
        shown = Checked(cut, tuple(prompts), result, pair.tokenizer)
        for entry in entries(shown):
            line = "".join(text for text, _ in entry_line(entry, pair.tokenizer.piece, 120))
            assert ("not begun" in line) == (entry.row not in begun)
            assert detail_lines(shown, entry.row, 80)


def test_three_kinds_of_files_say_the_same(
    pair: Pair, prompts: tuple[Prompt, ...], right: list[tuple[int, ...]], tmp_path: Path
) -> None:
    rows = [
        {"prompt_ids": prompt.ids, "output_ids": output}
        for prompt, output in zip(prompts, right, strict=True)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "b.json").write_text(json.dumps({"schema": "batchspec/run/1", "rows": rows}))
    trace = trace_of(pair, prompts, tmp_path / "c.jsonl", "eqspec")
    read = [read_foreign(path) for path in (tmp_path / "a.jsonl", tmp_path / "b.json", trace)]
    assert len({tuple(row.output_ids for row in one.rows) for one in read}) == 1
    assert len({tuple(row.prompt.ids for row in one.rows) for one in read}) == 1
    assert len(read_foreign(tmp_path / "a.jsonl", limit=2).rows) == 2
