"""Held-out instruction prompts, in eight categories: a draft is never trained on them.

Agreement on the target's greedy answers to these is a draft's figure of merit. Held-out text
that the target wrote unasked is easier to get and says less.
"""

from __future__ import annotations

from engine.distill.texts import load


def all_prompts() -> list[tuple[str, str]]:
    """``(category, prompt)`` for each prompt, in order."""
    prompts: dict[str, list[str]] = load("held_out")
    return [(category, prompt) for category, group in prompts.items() for prompt in group]
