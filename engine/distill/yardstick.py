"""The yardstick: instruction prompts that are never trained on, in eight categories.

Agreement on the target's greedy answers to these is what a draft is measured by. Held-out text
that the target wrote unasked is easier to get and says less.
"""

from __future__ import annotations

from engine.distill.texts import load


def all_prompts() -> list[tuple[str, str]]:
    """``(category, prompt)`` for each prompt, in order."""
    prompts: dict[str, list[str]] = load("yardstick")
    return [(category, prompt) for category, group in prompts.items() for prompt in group]
