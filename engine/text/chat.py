"""Chat formats: from a user's message to the ids of the whole prompt.

A tokenizer may bring its own template. Where it brings none, a pair names a format
(`engine.pairs.registry`): the text around the message. A template writes all special
tokens itself, a format leaves the first one to the tokenizer; neither ever doubles it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.config.errors import UserError

Template = Callable[[str], list[int]]
"""A user's message → the ids of the whole prompt in the model's chat format."""

PROMPT = "{prompt}"
"""Where the message goes in a format."""

THINKING = "enable_thinking"
"""The variable by which templates switch a model's thinking on and off."""


NO_THINKING = "--thinking: this model's chat format has no thinking to switch on"


def own_template(hf: Any | None, *, thinking: bool = False) -> Template | None:
    """The tokenizer's own template, where it has one.

    Args:
        thinking: let a model think before it answers, where its template knows of it.

    Raises:
        UserError: thinking is asked for, and the template has no switch for it.
    """
    written = getattr(hf, "chat_template", None)
    if thinking and THINKING not in str(written):
        raise UserError(NO_THINKING)
    if hf is None or not written:
        return None

    def template(text: str) -> list[int]:
        message = [{"role": "user", "content": text}]
        # a variable that a template does not know is no harm
        rendered = hf.apply_chat_template(
            message, add_generation_prompt=True, tokenize=False, **{THINKING: thinking}
        )
        return _ids(hf, rendered, special=False)

    return template


def format_template(hf: Any, text: str) -> Template:
    """A template made from a format.

    The special tokens that the tokenizer puts before any text are put before this one,
    unless the format begins with them itself.

    Args:
        text: the prompt's text, with `{prompt}` in the message's place.
    """

    def template(prompt: str) -> list[int]:
        written = text.replace(PROMPT, prompt)
        bare, whole = _ids(hf, written, special=False), _ids(hf, written, special=True)
        return bare if bare[:1] == whole[:1] else whole

    return template


def _ids(hf: Any, text: str, *, special: bool) -> list[int]:
    return [int(token) for token in hf.encode(text, add_special_tokens=special)]
