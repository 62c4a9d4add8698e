"""Numbers and names that stand in several places."""

from __future__ import annotations

from typing import Literal

Pace = Literal["round", "tokens", "time"]
"""What the lanes of a comparison are kept level in: rounds done, tokens committed, decoding
seconds spent."""

PACES: tuple[Pace, ...] = ("round", "tokens", "time")

LARGEST_LANES = 4
"""Lanes that fit side by side."""
