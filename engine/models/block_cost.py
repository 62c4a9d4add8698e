"""Which rows of a ragged block are cheaper to compute apart.

Attention is computed for rectangles (`engine.models.attention`). Rows that feed more tokens than
the others either widen the rectangle of all, or are computed apart from some width on.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

CELL = 1 / 6
"""Attention for one cell of a rectangle, in tokens: of all that the other parts of a layer do
for one (measured with 135 M parameters on two CPU cores; only proportions matter)."""

APART = 3.0
"""The same for a row that is computed apart from the others."""


def split(counts: Seq[int]) -> int:
    """The width up to which it is cheapest to compute all rows together."""
    return min(sorted({1, *counts} - {0}), key=lambda width: _attention(counts, width))


def _attention(counts: Seq[int], width: int) -> float:
    apart = sum(APART + CELL * (count - width) for count in counts if count > width)
    return CELL * len(counts) * width + apart
