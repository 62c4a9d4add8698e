"""What a check of another engine's tokens has found."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.evaluation.check.outputs import Foreign
from engine.records.schema import Prompt

if TYPE_CHECKING:
    from engine.evaluation.check.check import CheckResult
    from engine.text.tokenizer import Tokenizer


class Checked(NamedTuple):
    """What a check has found, and what is needed to show it."""

    foreign: Foreign
    prompts: tuple[Prompt, ...]
    result: CheckResult
    tokenizer: Tokenizer
