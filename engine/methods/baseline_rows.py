"""Rows as the baselines know them: an eos id is a token like any other."""

from __future__ import annotations

from engine.records.schema import Prompt
from engine.rounds.sequence import Sequence


class EndlessRow(Sequence):
    """A row whose eos ends nothing: it goes on to its budget.

    The published code cuts at eos when it compares, not when it decodes, so what follows
    is no fault of the batch (I5); whoever compares may cut as well.
    """

    def __init__(
        self,
        prompt: Prompt,
        *,
        budget: int,
        context: int,
        eos_ids: frozenset[int],
        pad_id: int = 0,
    ) -> None:
        super().__init__(prompt, budget=budget, context=context, eos_ids=frozenset(), pad_id=pad_id)


class PadSeekingRow(EndlessRow):
    """A row whose output is found by looking for the pad id (dsd).

    It begins its prompt's length after the first token that is not the pad id. A prompt
    that begins with the pad id loses as many tokens of its output.
    """

    @property
    def output(self) -> list[int]:
        leading = int((self.tokens != self.pad_id).argmax()) if self.length else 0
        return [int(token) for token in self.tokens[self.prompt_length + leading :]]
