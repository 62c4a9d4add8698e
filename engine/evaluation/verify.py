"""Output equivalence: methods against the oracle, and why each difference came about."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from engine.config.errors import UserError
from engine.config.methods import BROKEN_METHODS, CORRECT_METHODS, METHODS, check_method
from engine.config.settings import Settings
from engine.evaluation.oracle import Oracle
from engine.records.divergence import Answer, Divergence, agreement, attribute, cut_at_eos
from engine.records.fold import RowFold, fold_rows
from engine.records.schema import PairInfo, Prompt, RoundRecord, RowSummary, RunHeader
from engine.runs.run import Run

if TYPE_CHECKING:
    from engine.pairs.load import Pair

SCHEMA = "batchspec/verify/1"

Progress = Callable[[str, float | None], None]
"""Called with what is being done and how much of it is; an exception it raises cancels."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows equal the oracle's, by token id."""

    exact: int
    total: int
    exact_rate: float
    partial_rate: float
    """Mean share of the oracle's tokens before the first difference."""


class MethodVerdict(Rates, frozen=True, kw_only=True):
    """One method against the oracle: an entry of `methods` in `verify --json`."""

    divergences: tuple[Divergence, ...]
    """Of methods that run past eos: of the outputs cut there, since that they go on is
    known of all rows."""
    cut_at_eos: Rates | None
    """The rates with each output cut after its first eos, for methods that run past it."""
    seconds: float
    accepted_per_row_round: float
    errors: dict[int, str]
    """Rows that ended with an error, by request index."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `verify`."""

    schema: str = SCHEMA
    pair: PairInfo
    settings: dict[str, object]
    tolerance: float
    """Logits nearer to each other than this may change places by rounding."""
    oracle_seconds: float
    answers: tuple[Answer, ...]
    methods: dict[str, MethodVerdict]
    versions: dict[str, str]


def runnable_methods() -> tuple[str, ...]:
    """The correct methods that speculate, in the order in which they are listed."""
    return tuple(name for name in CORRECT_METHODS if METHODS[name].drafts)


def verify(
    pair: Pair,
    settings: Settings,
    methods: Sequence[str],
    prompts: Sequence[Prompt],
    *,
    oracle: Oracle | None = None,
    progress: Progress = lambda stage, fraction: None,
) -> Verification:
    """Run each method on the prompts and compare it with the oracle.

    Args:
        settings: of all methods (their `method` is ignored); greedy.
        oracle: of this pair, where answers may be at hand already.

    Raises:
        UserError: a temperature above 0, or a method that is not built.
    """
    if not settings.sampling.greedy:
        raise UserError("equality of outputs is defined for greedy decoding: use --temperature 0")
    if settings.force_accept is not None:
        raise UserError("nothing can be verified where acceptance is forced: no --force-accept")
    for name in methods:
        check_method(name)
    oracle = oracle or Oracle(pair)
    began = time.perf_counter()
    count = max(len(prompts), 1)
    answers = tuple(
        oracle.answers(
            prompts,
            settings,
            lambda rows, tokens: progress("oracle", rows / count),
        )
    )
    progress("measuring the tolerance", None)
    tolerance = oracle.tolerance(prompts, settings)
    oracle_seconds = time.perf_counter() - began
    verdicts: dict[str, MethodVerdict] = {}
    header: RunHeader | None = None
    for name in methods:
        chosen = msgspec.structs.replace(settings, method=name)
        run = Run(pair, chosen, prompts)
        header = header or run.header()
        rounds = []
        ended = 0
        for record in run.records():
            if isinstance(record, RoundRecord):
                rounds.append(record)
                ended += sum(row.finish_reason is not None for row in record.rows)
                progress(name, ended / count)
        verdicts[name] = judge(name, run, rounds, answers, tolerance, pair.tokenizer.eos_ids)
    recorded = dict(header.settings) if header is not None else {}
    recorded.pop("method", None)
    return Verification(
        pair=pair.info,
        settings=recorded,
        tolerance=tolerance,
        oracle_seconds=oracle_seconds,
        answers=answers,
        methods=verdicts,
        versions=header.versions if header is not None else {},
    )


def judge(
    method: str,
    run: Run,
    rounds: Sequence[RoundRecord],
    answers: Sequence[Answer],
    tolerance: float,
    eos_ids: Sequence[int],
) -> MethodVerdict:
    """Compare one finished run with the oracle's answers."""
    trails = fold_rows(rounds)
    summary = run.summary()
    for row in summary.rows:
        _keep_output(trails, row)
    raw = rates(trails, answers, None)
    cut = eos_ids if method in BROKEN_METHODS else None
    return MethodVerdict(
        exact=raw.exact,
        total=raw.total,
        exact_rate=raw.exact_rate,
        partial_rate=raw.partial_rate,
        divergences=tuple(attribute(trails, answers, tolerance, eos_ids=cut)),
        cut_at_eos=rates(trails, answers, cut) if cut is not None else None,
        seconds=summary.totals.seconds,
        accepted_per_row_round=summary.totals.accepted_per_row_round,
        errors={row.index: row.error for row in summary.rows if row.error is not None},
    )


def _keep_output(trails: dict[int, RowFold], row: RowSummary) -> None:
    """Compare what the method gives as a row's output, where that is not all it committed."""
    trail = trails.get(row.index)
    if trail is not None:
        lost = len(trail.output) - len(row.output_ids)
        trail.output = list(row.output_ids)
        trail.rounds, trail.accepted = trail.rounds[lost:], trail.accepted[lost:]


def rates(
    trails: dict[int, RowFold], answers: Sequence[Answer], eos_ids: Sequence[int] | None
) -> Rates:
    """Exact and partial agreement over all rows.

    Args:
        eos_ids: cut outputs after their first eos; None: as they are.
    """
    exact = 0
    shares = 0.0
    for answer in answers:
        output: Any = trails[answer.index].output if answer.index in trails else []
        if eos_ids is not None:
            output = cut_at_eos(output, eos_ids)
        equal = tuple(output) == answer.output_ids
        exact += equal
        expected = len(answer.output_ids)
        shares += 1.0 if equal else agreement(output, answer.output_ids) / max(expected, 1)
    total = len(answers)
    return Rates(
        exact=exact,
        total=total,
        exact_rate=exact / total if total else 1.0,
        partial_rate=shares / total if total else 1.0,
    )
