"""What a verification costs by its load, fitted to the rounds of the run."""

from __future__ import annotations

from collections import deque
from functools import cached_property

import numpy as np

ROUNDS = 48
"""Rounds that are fitted: on a shared machine older ones say little of now."""

FADE = 0.97
"""How much less a round says than the next one."""

FAR = 3.0
"""Rounds this many times farther from the fit than the median are left out of it."""

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Fit:
    """A line: seconds = base + slope · load (`engine.models.block_cost`)."""

    def __init__(self) -> None:
        # many rounds without draft tokens must not make those with some forgotten
        self._kept: dict[bool, deque[tuple[float, float]]] = {
            plain: deque(maxlen=ROUNDS // 4 if plain else ROUNDS) for plain in (True, False)
        }

    def observe(self, load: float, seconds: float, *, plain: bool = False) -> None:
        """Note a round.

        Args:
            plain: whether nobody drafted.
        """
        self._kept[plain].append((load, seconds))
        self.__dict__.pop("_line", None)

    @property
    def _rounds(self) -> list[tuple[float, float]]:
        return [*self._kept[True], *self._kept[False]]

    @property
    def kinds(self) -> int:
        """How many different loads there were."""
        return len({load for load, _ in self._rounds})

    @property
    def slope(self) -> float:
        """Seconds that one more token of load takes."""
        return self._line[1]

    def seconds(self, load: float) -> float:
        """What a verification takes."""
        base, slope = self._line
        return base + slope * load

    @cached_property
    def _line(self) -> tuple[float, float]:
        loads, seconds = np.array(self._rounds).T
        ages = [age for kept in self._kept.values() for age in range(len(kept))[::-1]]
        weights = np.power(FADE, np.array(ages, dtype=np.float64))
        base, slope = _line_through(loads, seconds, weights)
        off = np.abs(seconds - base - slope * loads)
        return _line_through(loads, seconds, weights * (off <= FAR * np.median(off)))


def _line_through(x: Array, y: Array, weights: Array) -> tuple[float, float]:
    """The weighted least squares' line; never falling, nor below zero where nothing is fed."""
    mean_x, mean_y = (float(weights @ values / weights.sum()) for values in (x, y))
    spread = float(weights @ (x - mean_x) ** 2)
    slope = float(weights @ ((x - mean_x) * (y - mean_y))) / spread if spread else 0.0
    slope = min(max(slope, 0.0), mean_y / mean_x)
    return mean_y - slope * mean_x, slope
