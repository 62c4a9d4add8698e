"""The five invariants of correct output, checked after every round.

The checks read the cache's ledger, which the forwards write: which token was written
to which cell, at which position. A method that breaks its batch breaks it there too.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from engine.models.kv_cache import EMPTY, LedgerArray
from engine.records.violation import CacheOf, InvariantName, Violation, ViolationKind
from engine.rounds.acceptance import Acceptance, Verdict
from engine.rounds.layout import Layout
from engine.rounds.sequence import Sequence
from engine.rounds.side import MaskArray, Side

CHECKED: tuple[InvariantName, ...] = ("I1", "I2", "I3", "I4", "I5")

Found = list[Violation]
"""What was found in a round; `Invariants.violations` adds since when it is so."""


def checked(layout: Layout, accept: Acceptance) -> tuple[str, ...]:
    """The invariants that can be checked: without a cache there is no I3, and no I5 where
    acceptance is synthetic."""
    held = {"I3": layout.keeps_cache, "I5": not accept.synthetic}
    return tuple(name for name in CHECKED if held.get(name, True))


class Invariants:
    """Checks a layout, and remembers since when each row has broken what."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int | None], int] = {}

    def before_commit(self, layout: Layout, rows: list[Sequence], verdicts: list[Verdict]) -> Found:
        """I4 and I5, on what the target read in this round.

        Call before the commit: a row's tokens are those that it had when it was fed.
        """
        found = rectangle_faults(layout, rows) if layout.aligned else []
        fed = layout.target.last
        window = layout.target.model.windows.size
        for place, (row, verdict) in enumerate(zip(rows, verdicts, strict=True)):
            if not verdict.finite:
                continue
            block = fed.columns[place, : len(verdict.draft_token_ids) + 1]
            own = np.concatenate([layout.read_columns(row, row.length - 1), block])
            found += mask_faults(row, fed.masks[place], own, len(block), window)
            expected = row.length - 1 + np.arange(len(verdict.draft_token_ids) + 1)
            positions = fed.positions[place, : len(expected)]
            if not np.array_equal(positions, expected):
                found.append(_wrong_position(row, positions, expected))
            found += choice_faults(row, verdict)
        return found

    def after_synchronise(self, layout: Layout, rows: list[Sequence]) -> Found:
        """I1, I2 and I3 on the synchronised state, and the ends of I5.

        Args:
            rows: those that took part in the round, the ended ones included.
        """
        found: Found = []
        if layout.rectangular:
            found += rectangle_faults(layout, layout.rows)
        for side in layout.sides:
            who: CacheOf = "target" if side is layout.target else "draft"
            for row in layout.rows:
                if row.running and layout.keeps_cache:
                    found += cache_faults(layout, side, row, who)
        for row in rows:
            found += end_faults(row)
        return found

    def violations(self, round: int, found: Found) -> tuple[Violation, ...]:
        """Make records of what was found, with the round since which it is so."""
        seen: dict[tuple[str, int | None], Violation] = {}
        for violation in found:  # a row shows the first one of each invariant
            key = (violation.invariant, violation.row)
            since = self._since.setdefault(key, round)
            seen.setdefault(key, replace(violation, since=since))
        self._since = {key: since for key, since in self._since.items() if key in seen}
        return tuple(seen.values())


def rectangle_faults(layout: Layout, rows: list[Sequence]) -> Found:
    """I1: padding, content and stale slots fill the rectangle, and padding does not pile up."""
    found: Found = []
    paddings = [layout.padding(row) for row in rows]
    length = layout.length()
    for row, padding in zip(rows, paddings, strict=True):
        if padding + row.length + layout.stale(row) != length:
            numbers = {"padding": padding, "content": row.length, "length": length}
            found.append(
                Violation(invariant="I1", row=row.index, kind="rectangle", numbers=numbers)
            )
    if paddings and min(paddings) != 0:
        numbers = {"least": min(paddings)}
        found.append(Violation(invariant="I1", row=None, kind="padding", numbers=numbers))
    return found


def mask_faults(
    row: Sequence, masks: MaskArray, own: LedgerArray, queries: int, window: int
) -> Found:
    """I4: the query of the last committed token attends to exactly the row's content, and
    each later query to one cell more: the one before it in the block. In layers with a
    window it is the newest of those cells alone.

    Args:
        masks: of the row, [kinds, tokens, columns read] (`Feed.masks`).
        own: columns of the row's content and of the block, in order.
        queries: tokens of the block.
        window: of the layers of kind 1.
    """
    for query in range(queries):
        visible = own[: len(own) - queries + query + 1]
        for kind, mask in enumerate(masks):
            expected = np.zeros(mask.shape[-1], bool)
            expected[visible[-window:] if kind else visible] = True
            attended = mask[query]
            if not np.array_equal(attended, expected):
                numbers = {
                    "query": query,
                    "extra": int((attended & ~expected).sum()),
                    "missing": int((expected & ~attended).sum()),
                    "window": window if kind else 0,
                }
                return [Violation(invariant="I4", row=row.index, kind="mask", numbers=numbers)]
    return []


def choice_faults(row: Sequence, verdict: Verdict) -> Found:
    """I5: each committed token is the target's choice at its place; for sampling, each
    acceptance is what its draw says, and a token that was just rejected (the draft likes it
    better than the target, so the residual has none of it) is not drawn after all."""
    drawn = [test for test in verdict.tests if test.draw is not None]
    for test in drawn:
        assert test.draw is not None
        if (test.draw * test.draft_prob < test.target_prob) != test.accepted:
            return [_wrong_choice(row, "draw", token=test.token)]
    if drawn:
        last = drawn[-1]
        rejected = last.token if not last.accepted and len(drawn) == verdict.accepted + 1 else None
        if rejected is not None and verdict.bonus == rejected:
            return [_wrong_choice(row, "rejected", token=rejected)]
        return []
    for place, (token, choice) in enumerate(zip(verdict.block, verdict.choices, strict=False)):
        if token != choice:
            return [_wrong_choice(row, "choice", place=place, expected=choice, found=token)]
    return []


def end_faults(row: Sequence) -> Found:
    """I5: nothing follows a row's end."""
    generated = row.tokens[row.prompt_length :]
    ends = np.flatnonzero(np.isin(generated[:-1], np.array([*row.eos_ids], np.int64)))
    if len(ends):
        at = int(ends[0])
        more = len(generated) - 1 - at
        return [_wrong_choice(row, "after_end", token=int(generated[at]), more=more)]
    if row.length > max(row.limit, row.prompt_length):
        return [_wrong_choice(row, "over_limit", length=row.length, limit=row.limit)]
    return []


def _wrong_choice(row: Sequence, kind: ViolationKind, **numbers: int) -> Violation:
    return Violation(invariant="I5", row=row.index, kind=kind, numbers=numbers)


def cache_faults(layout: Layout, side: Side, row: Sequence, model: CacheOf) -> Found:
    """I2 and I3: the valid slots hold the committed tokens in order, at positions 0, 1, 2, …

    K/V that were computed at another position are not the row's own, whatever their token
    is: they break I3 as well.
    """
    faults: Found = []

    def broken(kind: ViolationKind, **numbers: int) -> None:
        faults.append(
            Violation(invariant="I3", row=row.index, kind=kind, model=model, numbers=numbers)
        )

    count = side.valid[row.index]
    if model == "target" and count != row.length - 1:
        broken("cache_length", expected=row.length - 1, found=count)
        count = min(count, row.length - 1)
    cells = layout.content_cells(side, row, count)
    held = side.store.ids.reshape(-1)[cells]
    wrong = np.flatnonzero(held != row.tokens[:count])
    if len(wrong):
        at = int(wrong[0])
        found, expected = int(held[at]), int(row.tokens[at])
        if found == EMPTY:
            broken("cache_empty", slot=at, expected=expected)
        else:
            broken("cache_token", slot=at, expected=expected, found=found)
    positions = side.store.positions.reshape(-1)[cells]
    off = np.flatnonzero(positions != np.arange(count))
    if len(off) and not len(wrong):  # another token's K/V carry another token's position
        faults.append(_wrong_position(row, positions, np.arange(count), model))
        at = int(off[0])
        broken("cache_position", slot=at, found=int(positions[at]))
    return faults


def _wrong_position(
    row: Sequence,
    fed: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    expected: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    model: CacheOf = "",
) -> Violation:
    at = int(np.flatnonzero(fed != expected)[0])
    numbers = {"expected": int(expected[at]), "found": int(fed[at])}
    return Violation(invariant="I2", row=row.index, kind="position", model=model, numbers=numbers)
