"""The methods by name, in the order in which they are listed; needs no torch.

What a method does stands in `engine.methods.<name>`.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.config.errors import UserError


class MethodInfo(NamedTuple):
    """What is known of a method without loading it.

    Attributes:
        name: of the method, and of its module in `engine.methods`.
        description: a few words for a menu.
        correct: whether its output must equal the oracle's. The others are published
            baselines, reproduced with their faults.
        drafts: whether anything is drafted (else K = 0).
    """

    name: str
    description: str
    correct: bool = True
    drafts: bool = True


METHODS: dict[str, MethodInfo] = {
    info.name: info
    for info in (
        MethodInfo("autoregressive", "one token a step, no draft: the baseline", drafts=False),
        MethodInfo("eqspec", "left-padded rectangle, realigned after every round"),
        MethodInfo("exspec", "groups of one length, padding only as a fallback"),
        MethodInfo("slotspec", "a slot for each row, nothing ever moves"),
        MethodInfo("rollback", "every row cut to the shortest acceptance"),
        MethodInfo("bsp", "broken: rejected tokens stay in the cache, masked", correct=False),
        MethodInfo("dsd", "broken: padding piles up, no mask, no positions", correct=False),
    )
}

CORRECT_METHODS = tuple(name for name, info in METHODS.items() if info.correct)
"""The methods that must equal the oracle."""

BROKEN_METHODS = tuple(name for name, info in METHODS.items() if not info.correct)
"""The published baselines, reproduced with their faults."""


def check_method(name: str) -> None:
    """Raise a UserError that lists the methods where there is none of this name."""
    if name not in METHODS:
        raise UserError(f"unknown method '{name}'; choose one of {', '.join(METHODS)}")
