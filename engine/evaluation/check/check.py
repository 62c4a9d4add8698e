"""Another engine's tokens against the oracle: how much is right, and what went wrong.

A cause is named only where it was tested: a row that repeats or lacks tokens and is the
oracle's again after that; a wrong reading with which the target picks the very token that
the other engine wrote (`engine.evaluation.check.hypotheses`). All else is unexplained, and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from engine.config.settings import Settings
from engine.evaluation.check.diagnose import Cause, Explainer
from engine.evaluation.check.outputs import Foreign, ForeignRow
from engine.evaluation.oracle import Oracle
from engine.evaluation.verify import Rates, rates
from engine.records.divergence import Answer, attribute, cut_at_eos
from engine.records.fold import RowFold, fold_rows
from engine.records.schema import PairInfo, Prompt

if TYPE_CHECKING:
    from engine.pairs.load import Pair
    from engine.text.tokenizer import Tokenizer

SCHEMA = "batchspec/check/1"
MEASURED = 8
"""Rows at most on which the tolerance is measured."""

Progress = Callable[[str, float | None], None]


class CheckResult(Rates, frozen=True, kw_only=True):
    """The result of `check`."""

    schema: str = SCHEMA
    pair: PairInfo
    settings: dict[str, object]
    tolerance: float
    cut_at_eos: Rates
    """The rates with each output cut after its first eos."""
    divergences: tuple[Cause, ...]
    causes: dict[str, int]
    """How many rows have each cause."""
    answers: tuple[Answer, ...]
    errors: dict[int, str]
    """Rows that could not be compared, by index: they count in no rate."""
    notices: tuple[str, ...] = ()


def check(
    pair: Pair,
    settings: Settings,
    prompts: Sequence[Prompt],
    foreign: Foreign,
    *,
    tolerance: float | None = None,
    progress: Progress = lambda stage, fraction: None,
) -> CheckResult:
    """Compare rows with the oracle.

    Args:
        settings: greedy; `max_new_tokens` is how far the oracle goes.
        prompts: of the rows, in their order.
        tolerance: logits nearer than this may change places by rounding; None: measured.
    """
    foreign = _without_padding(foreign, pair.tokenizer)
    oracle = Oracle(pair)
    errors = _errors(prompts, foreign.rows, pair.target.vocabulary)
    good = [
        prompt
        for prompt in prompts
        if prompt.index not in errors and foreign.rows[prompt.index].begun
    ]
    count = max(1, len(good))
    answers = tuple(
        _as_far(answer, foreign.rows[answer.index])
        for answer in oracle.answers(
            good, settings, lambda rows, _: progress("oracle", rows / count)
        )
    )
    if tolerance is None:
        progress("measuring the tolerance", None)
        some = [prompt for prompt, answer in zip(good, answers, strict=True) if answer.output_ids]
        tolerance = oracle.tolerance(some[:MEASURED], settings) if some else 0.0
    trails = _trails(foreign)
    found = attribute(trails, answers, tolerance)
    explainer = Explainer(pair, settings, prompts, foreign, tolerance)
    causes = []
    for number, divergence in enumerate(found):
        progress("looking for causes", number / len(found))
        answer = next(one for one in answers if one.index == divergence.index)
        causes.append(explainer.cause(divergence, answer, trails[divergence.index]))
    raw, cut = rates(trails, answers, None), rates(trails, answers, pair.tokenizer.eos_ids)
    given = msgspec.to_builtins(settings)
    return CheckResult(
        exact=raw.exact,
        total=raw.total,
        exact_rate=raw.exact_rate,
        partial_rate=raw.partial_rate,
        pair=pair.info,
        settings={name: given[name] for name in ("max_new_tokens", "draft_tokens", "batch_size")}
        | {
            "device": str(pair.target.device),
            "dtype": str(pair.target.dtype).removeprefix("torch."),
        },
        tolerance=tolerance,
        cut_at_eos=cut,
        divergences=tuple(causes),
        causes=dict(Counter(cause.cause for cause in causes)),
        answers=answers,
        errors=errors,
        notices=(*foreign.notices, *_unfinished(foreign.rows)),
    )


def _without_padding(foreign: Foreign, tokenizer: Tokenizer) -> Foreign:
    """Rows that were filled up to one length after their end, cut there; that is reported."""
    rows, cut = [], 0
    for row in foreign.rows:
        output = tuple(cut_at_eos(row.output_ids, tokenizer.eos_ids))
        rest = set(row.output_ids[len(output) :])
        if len(rest) == 1 and rest <= {tokenizer.pad_id, *tokenizer.eos_ids}:
            cut += 1
            row = msgspec.structs.replace(
                row, output_ids=output, finish_reason="eos", running=False
            )
        rows.append(row)
    if not cut:
        return foreign
    notice = f"rows that hold nothing but padding after their end, which is left out: {cut}"
    return msgspec.structs.replace(foreign, rows=tuple(rows), notices=(*foreign.notices, notice))


def _errors(
    prompts: Sequence[Prompt], rows: Sequence[ForeignRow], vocabulary: int
) -> dict[int, str]:
    errors = {prompt.index: prompt.error for prompt in prompts if prompt.error}
    for index, row in enumerate(rows):
        largest = max(row.output_ids, default=0)
        if largest >= vocabulary:
            last = vocabulary - 1
            errors[index] = f"token id {largest} is outside the vocabulary (0 … {last})"
    return errors


def _as_far(answer: Answer, row: ForeignRow) -> Answer:
    """The answer as far as the row was to go: its budget was used up, or the file ends there."""
    length = len(row.output_ids)
    if not (row.finish_reason == "length" or row.running) or length >= len(answer.output_ids):
        return answer
    return msgspec.structs.replace(
        answer,
        output_ids=answer.output_ids[:length],
        gaps=answer.gaps[:length],
        finish_reason="length",
    )


def _unfinished(rows: Sequence[ForeignRow]) -> list[str]:
    """What is reported of rows that the file leaves before their end."""
    going = [index for index, row in enumerate(rows) if row.running and row.begun]
    waiting = [index for index, row in enumerate(rows) if not row.begun]
    notices = []
    if going:
        notices.append(
            f"{_rows(going)} had not ended where the trace does: compared as far as it goes"
        )
    if waiting:
        notices.append(f"{_rows(waiting)} had not begun where the trace ends: left out")
    return notices


def _rows(rows: Sequence[int]) -> str:
    if len(rows) == 1:
        return f"row {rows[0]}"
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    return f"rows {', '.join(map(str, rows[:8]))}{more}"


def _trails(foreign: Foreign) -> dict[int, RowFold]:
    """What is known of each row: its tokens, and from a trace its rounds and what broke."""
    trails = fold_rows(foreign.rounds)
    for index, row in enumerate(foreign.rows):
        trail = trails.setdefault(index, RowFold())
        if trail.output != list(row.output_ids):
            trail.output, trail.rounds, trail.accepted = list(row.output_ids), [], []
        trail.finish_reason = row.finish_reason or None
    return trails
