"""Which rows hold the others up, where nobody waits for their places.

While rows wait, every token is worth the same: whoever ends makes room. Once nobody does
(a fixed batch from its beginning, a continuous one near its end), a round costs nearly as
much for one row as for all, and only the row that ends last decides how many there are.
Draft tokens for a row that would end before it anyway buy nothing.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq


def holding_up(remaining: Seq[int], pace: float) -> list[bool]:
    """Whether each row may be the last one to end, if none is hurried but those.

    Args:
        remaining: tokens that each row may still commit.
        pace: tokens that a row with draft tokens commits in a round, on average; a row without
            commits one.
    """
    latest = max(remaining, default=0) / max(pace, 1.0)
    return [left >= latest for left in remaining]
