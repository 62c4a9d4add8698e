"""The mistakes that are tried on a row that differs: how another engine may have read it.

Those that engines for batches make: positions that jump because a padded or a rejected
token was counted, a slot whose K/V were never written, padding that was attended to, a
token too much or too little at the front, rejected tokens left in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.evaluation.check.rescore import Mistake, Reading
from engine.records.row import RowRound

WINDOW = 16
"""Tokens from the first difference on at which a reading is compared."""


def plain(prompt: Sequence[int], output: Sequence[int], place: int) -> Reading:
    """The right one: what the target picks where the row differs, and after it."""
    ids, places = _context(prompt, output, place)
    return Reading("right", "none", ids, tuple(range(len(ids))), places)


def readings(
    prompt: Sequence[int],
    output: Sequence[int],
    place: int,
    *,
    draft_tokens: int,
    longest: int,
    bos: int | None,
    pad: int,
    rounds: Sequence[RowRound] = (),
) -> Iterator[Reading]:
    """Wrong ones, what is known for certain first.

    Args:
        place: of the first difference among the new tokens.
        draft_tokens: K, as far as it is known.
        longest: tokens of the longest prompt beside this one.
        rounds: how the row came about, where that was recorded.
    """
    ids, places = _context(prompt, output, place)
    yield from _recorded(prompt, ids, place, places, rounds)
    yield from _in_front(ids, places, len(prompt), longest, bos, pad)
    yield from _behind(ids, places, len(prompt), place, longest, pad)
    begin, end = len(prompt), len(prompt) + place
    for shift in _shifts(draft_tokens, longest - len(prompt)):
        yield _shifted(ids, places, begin, shift, "shifted")
    for back in range(draft_tokens + 1):
        start = end - 1 - back
        if start <= begin:
            break
        for shift in _shifts(draft_tokens, 0):
            yield _shifted(ids, places, start, shift, "shifted_from", token=start - begin)
    for back in range(draft_tokens + 1):
        at = end - 2 - back
        if at < 1:
            break
        lost = {"token": at - begin} if at >= begin else {"prompt_token": at}
        positions = tuple(range(len(ids)))
        yield Reading(
            "cache",
            "no_kv",
            ids[:at] + ids[at + 1 :],
            positions[:at] + positions[at + 1 :],
            places,
            numbers=lost,
        )


def _context(
    prompt: Sequence[int], output: Sequence[int], place: int
) -> tuple[tuple[int, ...], int]:
    """What is fed so that the last places pick `output[place : place + WINDOW]`."""
    places = min(WINDOW, len(output) - place)
    return (*prompt, *output[: place + places - 1]), places


def _shifts(draft_tokens: int, padding: int) -> list[int]:
    return list(
        dict.fromkeys([*range(1, draft_tokens + 1), -1, *([padding] if padding > 0 else [])])
    )


def _shifted(
    ids: tuple[int, ...], places: int, start: int, shift: int, mistake: Mistake, **numbers: int
) -> Reading:
    positions = tuple(at + shift if at >= start else at for at in range(len(ids)))
    numbers["shift"] = shift
    return Reading("positions", mistake, ids, positions, places, numbers=numbers)


def _in_front(
    ids: tuple[int, ...], places: int, prompt: int, longest: int, bos: int | None, pad: int
) -> Iterator[Reading]:
    if bos is not None and ids[0] != bos:
        yield _counted("prompt", "bos_in_front", (bos, *ids), places)
    if prompt > 1:
        yield _counted("prompt", "first_token_missing", ids[1:], places)
    padding = longest - prompt
    if padding > 0:
        padded = (*[pad] * padding, *ids)
        yield _counted("padding", "padding_in_front", padded, places, padding=padding)


def _behind(
    ids: tuple[int, ...], places: int, prompt: int, place: int, longest: int, pad: int
) -> Iterator[Reading]:
    """A prompt that is padded on the right."""
    padding = longest - prompt
    if padding <= 0:
        return
    padded = (*ids[:prompt], *[pad] * padding, *ids[prompt:])
    yield _counted("padding", "padding_behind", padded, places, padding=padding)
    own = tuple(range(len(ids)))
    columns = tuple(range(prompt, prompt + padding))
    ways: tuple[tuple[int, Mistake], ...] = (
        (1, "padding_behind_restarts"),
        (prompt, "padding_behind_predicts"),
    )
    for start, mistake in ways:
        if start == prompt and place:
            continue  # that matters to the first new token alone
        after = tuple(start + at for at in range(len(ids) - prompt))
        positions = (*own[:prompt], *(0,) * padding, *after)
        numbers = {"padding": padding}
        yield Reading("padding", mistake, padded, positions, places, columns, numbers)


def _counted(
    kind: str, mistake: Mistake, ids: tuple[int, ...], places: int, **numbers: int
) -> Reading:
    return Reading(kind, mistake, ids, tuple(range(len(ids))), places, numbers=numbers)


def _recorded(
    prompt: Sequence[int],
    ids: tuple[int, ...],
    place: int,
    places: int,
    rounds: Sequence[RowRound],
) -> Iterator[Reading]:
    """What follows from the recorded rounds, exactly."""
    if not rounds:
        return
    right = tuple(range(len(ids)))
    fed = _fed_positions(prompt, rounds)
    if len(fed) >= len(ids) and fed[: len(ids)] != right:
        at = next(at for at, position in enumerate(fed) if position != at)
        numbers = {"token": at, "position": fed[at]}
        yield Reading(
            "positions", "recorded_positions", ids, fed[: len(ids)], places, numbers=numbers
        )
    advanced = _advanced_positions(prompt, rounds)
    if len(advanced) >= len(ids) and advanced[: len(ids)] != right:
        yield Reading("positions", "k_plus_1_positions", ids, advanced[: len(ids)], places)
    kept = _kept_tokens(prompt, rounds, place)
    if len(kept) > len(prompt) + place:
        yield _counted("cache", "rejected_tokens_kept", kept, 1)


def _fed_positions(prompt: Sequence[int], rounds: Sequence[RowRound]) -> tuple[int, ...]:
    """The positions of the row's tokens as they were fed, as far as all rounds tell them."""
    positions = list(range(len(prompt) - 1))
    for row in rounds:
        if len(row.positions) < 1 + len(row.draft_token_ids):
            break
        accepted = min(row.accepted, len(row.committed))
        positions += row.positions[: 1 + accepted]
        if accepted == len(row.committed):
            break  # it ended inside the accepted tokens
    return tuple(positions)


def _advanced_positions(prompt: Sequence[int], rounds: Sequence[RowRound]) -> tuple[int, ...]:
    positions, start = list(range(len(prompt))), len(prompt)
    for row in rounds:
        positions += [start + at for at in range(len(row.committed))]
        start += len(row.draft_token_ids) + 1
    return tuple(positions)


def _kept_tokens(prompt: Sequence[int], rounds: Sequence[RowRound], place: int) -> tuple[int, ...]:
    """The row up to new token `place`, with the rejected draft tokens of the rounds before."""
    kept, done = list(prompt), 0
    for row in rounds:
        committed = row.committed
        if done + len(committed) > place:
            kept += committed[: place - done]
            break
        accepted = min(row.accepted, len(committed))
        kept += committed[:accepted] + row.draft_token_ids[row.accepted :] + committed[accepted:]
        done += len(committed)
    return tuple(kept)
