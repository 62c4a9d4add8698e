"""The causes that `check` finds, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from engine.records.divergence import Divergence
from tui.view.sentences import divergence_words

if TYPE_CHECKING:
    from engine.evaluation.check.check import CheckResult
    from engine.evaluation.check.diagnose import Cause

_MISTAKES = {
    "bos_in_front": "a begin-of-sequence token in front",
    "first_token_missing": "the prompt without its first token",
    "padding_in_front": "{padding} padding tokens in front, attended to and counted",
    "padding_behind": "{padding} padding tokens behind the prompt, attended to and counted",
    "padding_behind_restarts": "{padding} padding tokens behind the prompt, masked, and the "
    "positions of the new tokens begin again at 1",
    "padding_behind_predicts": "{padding} padding tokens behind the prompt, masked, and the "
    "first new token predicted from the last of them",
    "recorded_positions": "the positions that the trace tells (token {token} of the row at "
    "{position})",
    "k_plus_1_positions": "positions that advance by K + 1 in each round, whatever was accepted",
    "rejected_tokens_kept": "the rejected draft tokens left in the cache, and attended to",
}

FACTS = ("mistake", "numbers", "violation", "tolerance", "finish_reason", "error")
"""Of a cause, what its `message` is made of: the JSON has that instead."""


def cause_words(cause: Cause) -> str:
    """Why the row differs, as far as that could be tested: the `message` of `check --json`."""
    numbers = cause.numbers
    if cause.cause == "numeric" and cause.distance is not None:
        return f"rounding: {cause.distance:.3g} below the best logit, within {cause.tolerance:.3g}"
    if cause.cause in ("repeated", "missing"):
        count = "token" if numbers["count"] == 1 else f"{numbers['count']} tokens"
        again = f"the next {numbers['follow']} are the oracle's again"
        if cause.cause == "repeated":
            return f"the last {count} before it stand twice; {again}"
        return f"{count} missing; {again}"
    if cause.cause == "draft_token":
        return "the draft token that the round rejected, committed all the same"
    if cause.cause == "unexplained" and "tried" in numbers:
        return (
            f"unexplained: the target's choice no. {cause.rank}, {cause.distance:.3g} below the "
            f"best; none of {numbers['tried']} wrong readings gives the row's tokens"
        )
    if cause.mistake != "none":
        of = "token" if cause.of == 1 else f"{cause.of} tokens"
        share = f"{cause.explained} of the {of} that a right reading does not give"
        return f"{mistake_words(cause.mistake, numbers)}: gives {share}"
    return divergence_words(_as_divergence(cause))


def mistake_words(mistake: str, numbers: dict[str, int]) -> str:
    """How the row was read wrongly."""
    if mistake in ("shifted", "shifted_from"):
        shift = numbers["shift"]
        by = f"{shift} too high" if shift > 0 else f"{-shift} too low"
        if mistake == "shifted":
            return f"positions of all new tokens {by}"
        rejected = ", as when rejected draft tokens were counted" if shift > 1 else ""
        return f"positions from new token {numbers['token']} on {by}{rejected}"
    if mistake == "no_kv":
        which = "new token {token}" if "token" in numbers else "prompt token {prompt_token}"
        return f"no K/V of {which.format_map(numbers)} in the cache"
    return _MISTAKES[mistake].format_map(numbers)


def _as_divergence(cause: Cause) -> Divergence:
    stopped = cause.cause == "stopped"
    return Divergence(
        index=cause.index,
        position=cause.position,
        expected=cause.expected,
        got=cause.got,
        oracle_gap=cause.oracle_gap,
        cause="stopped" if stopped else "numeric" if cause.cause == "numeric" else "desync",
        invariant=None,
        round=cause.round,
        violation=cause.violation,
        tolerance=cause.tolerance,
        finish_reason=cause.finish_reason,
        error=cause.error,
    )


def check_json(result: CheckResult) -> dict[str, Any]:
    """The result as plain values: `batchspec/check/1` of the contract."""
    plain: dict[str, Any] = msgspec.to_builtins(result, str_keys=True)
    for entry, cause in zip(plain["divergences"], result.divergences, strict=True):
        for fact in FACTS:
            del entry[fact]
        entry["message"] = cause_words(cause)
    return plain
