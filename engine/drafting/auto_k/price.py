"""What a draft token has to be worth, and how far each row goes."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from engine.models.block_cost import APART, CELL, load

LEAST = 0.12
"""Chance of acceptance below which nothing is drafted, however little it costs."""


@dataclass(frozen=True)
class Price:
    """What a round costs, seen from the rows whose tokens count.

    One more draft token pays if it raises the tokens a second that its row makes. So the deeper
    a row goes the more is asked for: what is not drafted now is cheap to draft in the next
    round, if it comes to that.

    Any of them may be 0: a clock that stands still has measured that.

    Attributes:
        token: seconds of one more token (of load, `engine.models.block_cost`).
        row: a row's share of the seconds of a round without draft tokens.
        rows: how many there are.
    """

    token: float
    row: float = 1.0
    rows: int = 1

    @property
    def least(self) -> float:
        """Chance of acceptance from which a row's first draft token pays."""
        if not self.token:
            return LEAST
        return min(1.0, max(LEAST, self.token / self.row)) if self.row else 1.0

    def pays(self, chance: float, before: Seq[float] = ()) -> bool:
        """Whether one more draft token of a row does.

        Args:
            chance: that it is accepted, and all before it.
            before: the same of each of those.
        """
        seconds = self.row + len(before) * self.token
        return chance >= LEAST and chance * seconds >= self.token * (1.0 + sum(before))

    def depth(self, chances: Seq[float]) -> int:
        """How many of a row's draft tokens pay, for themselves."""
        taken = 0
        while taken < len(chances) and self.pays(chances[taken], chances[:taken]):
            taken += 1
        return taken


FREE = Price(token=0.0)
"""Where K is fixed, all K are drafted, whatever they are worth."""


def depths(rows: Seq[Seq[float]], price: Price) -> list[int]:
    """How many draft tokens each row makes: the most tokens a second of the whole round.

    All rows go as deep as is good for each, up to some depth common to all. From there on a
    row goes alone, if that raises the tokens a second that it makes.

    Args:
        rows: for each row, the chance that its first, its first two, … are accepted.
    """
    if price is FREE:
        return [len(chances) for chances in rows]
    alone = [price.depth(chances) for chances in rows]
    if not price.token or not any(alone):
        return alone
    # from here on a round takes time: where it takes none, no draft token pays that takes some
    plain = load([1] * len(rows))
    made, pace = [0] * len(rows), 1.0 / price.row
    for common in range(1, max(alone, default=0) + 1):
        tried = [min(common, depth) for depth in alone]
        gained = sum(sum(chances[:depth]) for chances, depth in zip(rows, tried, strict=True))
        taken = price.token * (load([depth + 1 for depth in tried]) - plain)
        tried_pace = (price.rows + gained) / (price.rows * price.row + taken)
        if tried_pace > pace:
            made, pace = tried, tried_pace
    for place, (chances, depth) in enumerate(zip(rows, alone, strict=True)):
        shallow = made[place]
        pace = (1.0 + sum(chances[:shallow])) / (price.row + price.token * shallow)
        taken = price.token * (APART + (1.0 + CELL) * (depth - shallow))
        if sum(chances[shallow:depth]) > taken * pace:
            made[place] = depth
    return made
