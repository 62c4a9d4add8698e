"""One row: its committed tokens, how far it may still go, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np

from engine.records.schema import Prompt


class Sequence:
    """A prompt and the tokens committed after it.

    Attributes:
        index: request index, in the order of the prompts.
        length: committed tokens n (prompt included). Between rounds the target's cache
            holds n − 1 of them: the last one has no K/V yet.
        pad_id: what padding is filled with. Nothing that is correct recognises padding by it.
        finish_reason: eos, length, context, batch or error; None while it runs.
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
        self.prompt = prompt
        self.index = prompt.index
        self.prompt_length = len(prompt.ids)
        self.eos_ids = eos_ids
        self.pad_id = pad_id
        self.limit = min(self.prompt_length + budget, context)
        """Committed tokens at which the row ends."""
        self._limit_reason = "length" if self.prompt_length + budget <= context else "context"
        self._tokens = np.zeros(max(self.limit, self.prompt_length) + 1, np.int64)
        self._tokens[: self.prompt_length] = prompt.ids
        self.length = self.prompt_length
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.rounds = 0
        self.accepted = 0
        self.drafted = 0
        self.waited = 0
        if prompt.error is not None:
            self.fail(prompt.error)
        elif self.remaining <= 0:
            self.finish_reason = self._limit_reason

    @property
    def tokens(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """All committed tokens, [length] (a view)."""
        return self._tokens[: self.length]

    @property
    def output(self) -> list[int]:
        """The committed tokens after the prompt."""
        return [int(token) for token in self._tokens[self.prompt_length : self.length]]

    @property
    def remaining(self) -> int:
        """Tokens that the row may still commit."""
        return self.limit - self.length

    @property
    def running(self) -> bool:
        return self.finish_reason is None

    def draft_limit(self, draft_tokens: int) -> int:
        """K_i ≤ remaining − 1: the bonus needs a place too."""
        return max(0, min(draft_tokens, self.remaining - 1))

    def commit(self, block: Seq[int]) -> list[int]:
        """Make a round's tokens final, up to the first end of the row.

        Args:
            block: accepted tokens and the bonus, in order.

        Returns:
            The tokens that were kept: cut after the first eos, or at the row's limit.
        """
        kept = list(block[: self.remaining])
        end = self.end(kept)
        if end is not None:
            del kept[end + 1 :]
            self.finish_reason = "eos"
        self._tokens[self.length : self.length + len(kept)] = kept
        self.length += len(kept)
        if self.running and self.remaining <= 0:
            self.finish_reason = self._limit_reason
        return kept

    def end(self, block: list[int]) -> int | None:
        """Where in a block the row ends: at its first eos."""
        return next((at for at, token in enumerate(block) if token in self.eos_ids), None)

    def stop(self, reason: str) -> None:
        """End the row before its own end. What it committed is kept."""
        if self.running:
            self.finish_reason = reason

    def resume(self, other: Sequence, length: int | None = None) -> None:
        """Take over what another object committed for the same prompt.

        Args:
            length: go back to this many tokens, and run on from there; None: go on where
                the other stands, ended or not.
        """
        kept = min(other.length if length is None else length, max(self.limit, self.length))
        assert self.prompt_length <= kept <= other.length, "a row restarts within its tokens"
        self._tokens[:kept] = other.tokens[:kept]
        self.length = kept
        self.rounds, self.accepted, self.drafted = other.rounds, other.accepted, other.drafted
        if length is None and not other.running:
            self.finish_reason, self.error = other.finish_reason, other.error
        elif self.running and self.end(self.output) is not None:
            self.finish_reason = "eos"
        elif self.running and self.remaining <= 0:
            self.finish_reason = self._limit_reason

    def restore(self, output: Seq[int], *, rounds: int, accepted: int, drafted: int) -> None:
        """Begin with tokens that were committed elsewhere, as many as the row may have.

        Args:
            output: after the prompt.
            rounds, accepted, drafted: what it took to make them.
        """
        if not self.running:
            return
        kept = list(output[: self.remaining])
        end = self.prompt_length + len(kept)
        self._tokens[self.prompt_length : end] = kept
        self.length = end
        self.rounds, self.accepted, self.drafted = rounds, accepted, drafted
        if self.end(self.output) is not None:
            self.finish_reason = "eos"
        elif self.remaining <= 0:
            self.finish_reason = self._limit_reason

    def fail(self, message: str) -> None:
        """End the row with an error. What it committed before is kept."""
        self.finish_reason = "error"
        self.error = message
