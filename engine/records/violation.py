"""An invariant that did not hold, as facts. Whoever shows it makes the sentence."""

from __future__ import annotations

from typing import Literal

import msgspec

InvariantName = Literal["I1", "I2", "I3", "I4", "I5"]

ViolationKind = Literal[
    "", "rectangle", "padding", "position", "cache_length", "cache_empty", "cache_token",
    "cache_position", "ghosts", "mask", "choice", "draw", "rejected", "after_end", "over_limit",
]  # fmt: skip


CacheOf = Literal["", "target", "draft"]
"""Whose cache a violation is about; empty: none, but what was fed to the target."""


class Violation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An invariant that a row, or the batch, broke.

    What `numbers` holds depends on the kind:

    | invariant | kind | numbers |
    |---|---|---|
    | I1 | rectangle | padding, content, length: the first two and the stale slots do not add up |
    | I1 | padding | least: columns of padding that every row has |
    | I2 | position | expected, found: position IDs of the first wrong token |
    | I3 | cache_length | expected, found: committed tokens in the cache |
    | I3 | cache_empty | slot, expected: the token that is missing |
    | I3 | cache_token | slot, expected, found: token ids |
    | I3 | cache_position | slot, found: the position at which its K/V were computed |
    | I3 | ghosts | none; `slots` has those whose K/V differ from the row's own (`--audit`) |
    | I4 | mask | query, extra, missing: cells seen and not seen wrongly; window: of the layer |
    | I5 | choice | place (in the block), expected, found: token ids |
    | I5 | draw | token: verified against its random draw |
    | I5 | rejected | token: rejected and committed all the same |
    | I5 | after_end | token: that ended the row, more: tokens after it |
    | I5 | over_limit | length, limit: committed tokens, and how many there may be |
    """

    invariant: InvariantName
    row: int | None
    """None: the whole batch."""
    kind: ViolationKind = ""
    """Empty where another program recorded it: `note` says what it knows."""
    since: int = 0
    """The round in which this row first broke this invariant."""
    model: CacheOf = ""
    numbers: dict[str, int] = {}
    slots: tuple[int, ...] = ()
    note: str = ""
    """The recording program's own words."""
