"""The five invariants of correct output, checked after every round.

The checks read the cache's ledger, which the forwards write: which token was written
to which cell, at which position. A method that breaks its batch breaks it there too.
"""

from __future__ import annotations

import numpy as np

from engine.config.counted import counted
from engine.models.kv_cache import EMPTY, LedgerArray
from engine.records.schema import Violation
from engine.rounds.acceptance import Acceptance, Verdict
from engine.rounds.layout import Layout
from engine.rounds.sequence import Sequence
from engine.rounds.side import MaskArray, Side

CHECKED = ("I1", "I2", "I3", "I4", "I5")

Found = list[tuple[str, int | None, str]]
"""Invariant, row (None: the batch) and what is wrong."""


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
            message = mask_fault(fed.masks[place], own, len(block), window)
            if message:
                found.append(("I4", row.index, message))
            expected = row.length - 1 + np.arange(len(verdict.draft_token_ids) + 1)
            positions = fed.positions[place, : len(expected)]
            if not np.array_equal(positions, expected):
                found.append(("I2", row.index, _position_fault(positions, expected)))
            message = choice_fault(verdict)
            if message:
                found.append(("I5", row.index, message))
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
            who = "target" if side is layout.target else "draft"
            for row in layout.rows:
                if row.running and layout.keeps_cache:
                    found += cache_faults(layout, side, row, who)
        for row in rows:
            message = end_fault(row)
            if message:
                found.append(("I5", row.index, message))
        return found

    def violations(self, round: int, found: Found) -> tuple[Violation, ...]:
        """Make records of what was found, with the round since which it is so."""
        seen: dict[tuple[str, int | None], Violation] = {}
        for invariant, row, message in found:
            since = self._since.setdefault((invariant, row), round)
            key = (invariant, row)
            if key not in seen:
                seen[key] = Violation(
                    invariant=invariant,  # type: ignore[arg-type]
                    row=row,
                    message=message,
                    since=since,
                )
        self._since = {key: since for key, since in self._since.items() if key in seen}
        return tuple(seen.values())


def rectangle_faults(layout: Layout, rows: list[Sequence]) -> Found:
    """I1: padding, content and stale slots fill the rectangle, and padding does not pile up."""
    found: Found = []
    paddings = [layout.padding(row) for row in rows]
    length = layout.length()
    for row, padding in zip(rows, paddings, strict=True):
        if padding + row.length + layout.stale(row) != length:
            message = f"padding {padding} + content {row.length} ≠ length {length}"
            found.append(("I1", row.index, message))
    if paddings and min(paddings) != 0:
        message = f"padding piles up: every row has at least {min(paddings)}"
        found.append(("I1", None, message))
    return found


def mask_fault(masks: MaskArray, own: LedgerArray, queries: int, window: int) -> str:
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
                extra = int((attended & ~expected).sum())
                missing = int((expected & ~attended).sum())
                seen = (
                    f"sees {counted(extra, 'cell')} that {_are(extra)} not its own" if extra else ""
                )
                missed = f"misses {missing} of its own" if missing else ""
                where = f", through a window of {window}" if kind else ""
                return f"query {query} {' and '.join(filter(None, (seen, missed)))}{where}"
    return ""


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def choice_fault(verdict: Verdict) -> str:
    """I5: each committed token is the target's choice at its place; for sampling, each
    acceptance is what its draw says, and a token that was just rejected (the draft likes it
    better than the target, so the residual has none of it) is not drawn after all."""
    drawn = [test for test in verdict.tests if test.draw is not None]
    for test in drawn:
        assert test.draw is not None
        if (test.draw * test.draft_prob < test.target_prob) != test.accepted:
            return f"token {test.token} was judged against its draw"
    if drawn:
        last = drawn[-1]
        rejected = last.token if not last.accepted and len(drawn) == verdict.accepted + 1 else None
        if rejected is not None and verdict.bonus == rejected:
            return f"token {rejected} was rejected, and committed in place of the target's own"
        return ""
    for place, token in enumerate(verdict.block):
        if place < len(verdict.choices) and token != verdict.choices[place]:
            return (
                f"token {place} of the block is {token}, the target chose {verdict.choices[place]}"
            )
    return ""


def end_fault(row: Sequence) -> str:
    """I5: nothing follows a row's end."""
    generated = row.tokens[row.prompt_length :]
    ends = np.flatnonzero(np.isin(generated[:-1], np.array([*row.eos_ids], np.int64)))
    if len(ends):
        at = int(ends[0])
        more = len(generated) - 1 - at
        verb = "follows" if more == 1 else "follow"
        return f"the row ended with token {generated[at]}, {more} more {verb}"
    if row.length > max(row.limit, row.prompt_length):
        return f"{row.length} tokens are committed, the row's limit is {row.limit}"
    return ""


def cache_faults(layout: Layout, side: Side, row: Sequence, who: str) -> Found:
    """I2 and I3: the valid slots hold the committed tokens in order, at positions 0, 1, 2, …

    K/V that were computed at another position are not the row's own, whatever their token
    is: they break I3 as well.
    """
    faults: Found = []
    count = side.valid[row.index]
    if who == "target" and count != row.length - 1:
        message = f"the cache holds {counted(count, 'token')}, {row.length - 1} are due"
        faults.append(("I3", row.index, message))
        count = min(count, row.length - 1)
    cells = layout.content_cells(side, row, count)
    held = side.store.ids.reshape(-1)[cells]
    wrong = np.flatnonzero(held != row.tokens[:count])
    if len(wrong):
        at = int(wrong[0])
        due = row.tokens[at]
        what = (
            f"is empty, token {due} is due"
            if held[at] == EMPTY
            else f"holds token {held[at]}, not {due}"
        )
        message = f"cache slot {at} of the {who} {what}"
        faults.append(("I3", row.index, message))
    positions = side.store.positions.reshape(-1)[cells]
    off = np.flatnonzero(positions != np.arange(count))
    if len(off) and not len(wrong):  # another token's K/V carry another token's position
        message = f"{who}: " + _position_fault(positions, np.arange(count))
        faults.append(("I2", row.index, message))
        at = int(off[0])
        message = f"cache slot {at} of the {who} was computed at position {positions[at]}, not {at}"
        faults.append(("I3", row.index, message))
    return faults


def _position_fault(
    fed: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    expected: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
) -> str:
    at = int(np.flatnonzero(fed != expected)[0])
    due, got = int(expected[at]), int(fed[at])
    if got < due:
        return f"content token {due} was fed at position {got}"
    first = "position" if got == due + 1 else f"positions {due} to"
    return f"{first} {got - 1} {'was' if got == due + 1 else 'were'} skipped"
