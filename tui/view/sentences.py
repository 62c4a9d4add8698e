"""What records say, in sentences. Records hold facts; every word about them is chosen here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.config.counted import counted
from engine.microscope.breakpoints import Hit
from engine.records.divergence import Divergence
from engine.records.match import RowDivergence
from engine.records.row import RowRound
from engine.records.schema import ChangeRecord, DraftChoice, RoundRecord
from engine.records.violation import Violation

LETTERS = {"draft_tokens": "K", "batch_size": "B", "window": "W"}
"""Settings that everybody knows by a letter."""


def violation_words(violation: Violation) -> str:
    """What is wrong: "cache slot 3 of the target is empty, token 17 is due"."""
    if violation.note:
        return violation.note
    say = {
        "mask": _mask_words,
        "position": _position_words,
        "cache_length": _cache_length_words,
        "after_end": _after_end_words,
        "ghosts": _ghost_words,
    }.get(violation.kind)
    if say is not None:
        return say(violation)
    template = _VIOLATIONS.get(violation.kind, "{invariant} is broken")
    facts = {**violation.numbers, "invariant": violation.invariant, "model": violation.model}
    return template.format_map(facts)


_VIOLATIONS = {
    "rectangle": "padding {padding} + content {content} ≠ length {length}",
    "padding": "padding piles up: every row has at least {least}",
    "cache_empty": "cache slot {slot} of the {model} is empty, token {expected} is due",
    "cache_token": "cache slot {slot} of the {model} holds token {found}, not {expected}",
    "cache_position": "cache slot {slot} of the {model} was computed at position {found}, "
    "not {slot}",
    "choice": "token {place} of the block is {found}, the target chose {expected}",
    "draw": "token {token} was verified against its draw",
    "rejected": "token {token} was rejected, and committed in place of the target's own",
    "over_limit": "{length} tokens are committed, the row's limit is {limit}",
}


def _mask_words(violation: Violation) -> str:
    numbers = violation.numbers
    extra, missing, window = numbers["extra"], numbers["missing"], numbers["window"]
    verb = "is" if extra == 1 else "are"
    seen = f"sees {counted(extra, 'cell')} that {verb} not its own" if extra else ""
    missed = f"misses {missing} of its own" if missing else ""
    where = f", through a window of {window}" if window else ""
    return f"query {numbers['query']} {' and '.join(filter(None, (seen, missed)))}{where}"


def _position_words(violation: Violation) -> str:
    expected, found = violation.numbers["expected"], violation.numbers["found"]
    whose = f"{violation.model}: " if violation.model else ""
    if found < expected:
        return f"{whose}content token {expected} was fed at position {found}"
    if found == expected + 1:
        return f"{whose}position {expected} was skipped"
    return f"{whose}positions {expected} to {found - 1} were skipped"


def _cache_length_words(violation: Violation) -> str:
    numbers = violation.numbers
    return f"the cache holds {counted(numbers['found'], 'token')}, {numbers['expected']} are due"


def _after_end_words(violation: Violation) -> str:
    more = violation.numbers["more"]
    verb = "follows" if more == 1 else "follow"
    return f"the row ended with token {violation.numbers['token']}, {more} more {verb}"


def _ghost_words(violation: Violation) -> str:
    return f"ghosts: K/V of slot {ranges(violation.slots)} are not the row's own"


def ranges(indices: Sequence[int]) -> str:
    """17, 18, 19, 23 → "17–19, 23"."""
    parts: list[list[int]] = []
    for index in indices:
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in parts)


def schedule_words(record: RoundRecord, row: RowRound, *, brief: bool = False) -> str:
    """Why the scheduler put the row where it is; "" where there is nothing to say."""
    if row.note:
        return row.note
    lengths = [entry.before for entry in record.rows]
    words = ""
    if record.kind == "slots" and row.row in record.admitted:
        words = "joined" if brief else f"joined: slot {row.place}"
    elif record.kind == "grouped":
        words = f"group of {len(lengths)} at length {lengths[0]}"
    elif record.kind == "fallback" and brief:
        words = "fallback"
    elif record.kind == "fallback":
        spread = max(lengths) - min(lengths)
        words = f"fallback: largest group {record.largest_group}, padded by up to {spread}"
    starving = next((entry for entry in record.rows if entry.row == record.starving), None)
    if starving is None:
        return words
    return f"row {starving.row} waited {starving.waited} rounds; {words}"


def choice_words(choice: DraftChoice) -> str:
    """Why a round has its K."""
    if choice.note:
        return choice.note
    reasons = {"measuring": "measuring", "trial": "trying another K", "fastest": "the fastest K"}
    words = reasons.get(choice.reason, "")
    paces = ", ".join(f"K = {k}: {pace:.0f}" for k, pace in sorted(choice.paces.items()))
    return f"{words} ({paces} tok/s a row)" if paces else words


def change_words(change: ChangeRecord) -> str:
    """What was changed: "K = 3, B = 8"."""
    if change.note:
        return change.note
    if change.kind == "prompts":
        return ", ".join(f"prompt {prompt.index} joins" for prompt in change.prompts)
    if change.kind == "back":
        verb = "stands" if len(change.rows) == 1 else "stand"
        return f"{counted(len(change.rows), 'row')} {verb} as after round {change.back}"
    if change.kind == "forced":
        said = "".join(change.pieces.get(token, f"⟨{token}⟩") for token in change.token_ids)
        return f"row {change.rows[0]} is to draft “{said}”"
    if change.kind == "memory":
        return f"out of memory in round {change.round + 1}: {lower_words(change.lower)}"
    return ", ".join(changed_words(change, change.changed)) or "nothing changed"


def changed_words(change: ChangeRecord, names: Sequence[str]) -> list[str]:
    """Settings with their new values: "K = 3"."""
    return [
        f"{LETTERS.get(name, name.replace('_', ' '))} = {change.settings.get(name)}"
        for name in names
    ]


def lower_words(lower: Mapping[str, int]) -> str:
    """Which settings are to be lowered, and from what."""
    if not lower:
        return "take a smaller model or dtype"
    named = [f"--{name.replace('_', '-')} ({value})" for name, value in lower.items()]
    return "lower " + " or ".join(named)


def warning_words(settings: Mapping[str, object]) -> str:
    """What makes the outputs other than the target's; "" where nothing does."""
    rate, spread = settings.get("force_accept"), settings.get("force_spread")
    if not isinstance(rate, float | int):
        return ""
    about = f" ± {spread:g}" if isinstance(spread, float | int) and spread else ""
    return (
        f"acceptance is forced at a rate of {rate:g}{about}: "
        "the texts are not what the target would write"
    )


NOT_CHOSEN = ("choice", "draw", "rejected")
"""Kinds of violation in which a committed token is not the target's choice."""


def divergence_words(found: Divergence) -> str:
    """Why a row differs from the oracle: the `message` of `verify --json`."""
    if found.cause == "stopped":
        reason = found.finish_reason or "no finish reason"
        return found.error or f"the row ended ({reason}) before the oracle did"
    if found.violation is not None:
        return violation_words(found.violation)
    if found.expected is None:
        return f"the row went on where the oracle had ended ({found.finish_reason})"
    if found.cause == "numeric":
        return f"rounding: a gap of {found.oracle_gap:.3g} within {found.tolerance:.3g}"
    gap = found.oracle_gap
    apart = "an unknown distance" if gap is None else f"{gap:.3g}"
    return (
        f"unexplained: no invariant broke, and the oracle's two best tokens are {apart} apart "
        f"(tolerance {found.tolerance:.3g})"
    )


def row_divergence_words(entry: RowDivergence, tolerance: float | None, name: str = "") -> str:
    """Why and when the row left the oracle, or the recording of this name."""
    found = entry.divergence
    if name and found.invariant in (None, "I5") and None in (found.got, found.expected):
        went = "ended before" if found.got is None else "goes on after"
        return f"it {went} the row of {name}, in round {entry.round}"
    if name and found.invariant is None:
        return f"it differs from the row of {name}, from round {entry.round} on"
    if found.cause == "numeric":
        if tolerance is None:
            return f"no invariant broke; the two best tokens are {found.oracle_gap:.2g} apart"
        return f"rounding: the two best tokens are only {found.oracle_gap:.2g} apart"
    words = divergence_words(found)
    if found.cause == "stopped" or found.expected is None:
        return f"{words}, in round {entry.round}"
    if found.violation is None:
        return words
    if found.violation.kind in NOT_CHOSEN:
        return f"took a token that the target had not chosen, in round {found.round}"
    return f"{words}, since round {found.round}"


def unlike_words(compared: int) -> str:
    """That only so many rows of recordings have the same prompt in all of them."""
    if not compared:
        return "the prompts differ: no row has the same prompt in all traces: none is compared"
    rows = "row has" if compared == 1 else "rows have"
    return (
        f"the prompts differ: only {compared} {rows} the same prompt in all traces "
        "and can be compared"
    )


def hit_words(hit: Hit) -> str:
    """Which breakpoint applied, where, and what was found."""
    who = "" if hit.row is None else f"row {hit.row}: "
    return f"{hit.breakpoint} in round {hit.round}: {who}{_found_words(hit)}"


def _found_words(hit: Hit) -> str:
    point, row = hit.breakpoint, hit.entry
    if hit.violation is not None:
        return f"{hit.violation.invariant}: {violation_words(hit.violation)}"
    if hit.divergence is not None:
        return _difference_words(hit.divergence)
    if row is not None:
        accepted = f"{row.accepted} of {len(row.draft_token_ids)} accepted"
        return {
            "finish": f"ended ({row.finish_reason})",
            "token": f"committed token {point.number or 0:g}",
        }.get(point.kind, accepted)
    return {
        "round": "it is this round",
        "fallback": f"no group of one length; rows {_names(hit.padded)} were padded",
        "realign": f"realignment took {100 * hit.share:.1f} % of the round",
    }.get(point.kind, "the text appeared")


def _difference_words(found: Divergence) -> str:
    if found.got is None:
        return "it ended before the oracle did"
    if found.expected is None:
        return "it goes on where the oracle ended"
    return f"new token {found.position} is {found.got}, the oracle's is {found.expected}"


def _names(rows: Sequence[int]) -> str:
    shown = ", ".join(str(row) for row in rows[:6])
    return shown + (f" and {len(rows) - 6} more" if len(rows) > 6 else "")
