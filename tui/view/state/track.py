"""One request through a whole run, indexed so that any round is cheap to look at."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from engine.records.row import RowRound
from engine.records.schema import Prompt


class Branch(NamedTuple):
    """A row's tokens and text since it last went back (the kept beginning is repeated)."""

    begin: int
    """The first round that sees them."""
    tokens: list[int]
    texts: list[str]
    """The text, in one piece."""


class RowTrack:
    """One row, round by round. Every index only grows."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self.prompt_length = len(prompt.ids)
        self.rounds: list[int] = []
        """Rounds in which it took part or went back."""
        self.ends: list[int] = []
        """Committed tokens after each of them."""
        self.text_ends: list[int] = []
        self.sums: list[int] = []
        """Accepted tokens up to and with each of them."""
        self.error: str = prompt.error or ""
        self.has_text = False
        """Whether the records tell its text, and not only its tokens."""
        self._branches = [Branch(0, list(prompt.ids), [""])]
        self._parts: list[int] = []
        """Rounds in which it took part, up to and with each of them."""
        self._finishes: list[tuple[int, str]] = []
        """Rounds in which it ended, and with what; empty: in which it ran again."""

    def add(self, number: int, record: RowRound) -> None:
        """Take in one round of the row."""
        if record.before < len(self._branches[-1].tokens):
            self.go_back(number, record.before)
        branch = self._branches[-1]
        branch.tokens.extend(record.committed)
        branch.texts[0] += record.text
        self._mark(number, record.accepted, 1)
        if record.error:
            self.error = record.error
        if record.finish_reason and not self.finished_at(number):
            self._finishes.append((number, record.finish_reason))

    def go_back(self, number: int, length: int) -> None:
        """In round `number` the row stands again where it had `length` committed tokens."""
        branch = self._branches[-1]
        if length >= len(branch.tokens):
            return
        kept = 0
        for end, text_end in zip(reversed(self.ends), reversed(self.text_ends), strict=True):
            if end <= length:
                kept = text_end
                break
        self._branches.append(Branch(number, branch.tokens[:length], [branch.texts[0][:kept]]))
        self._mark(number, 0, 0)
        if self.finished_at(number):
            self._finishes.append((number, ""))

    def _mark(self, number: int, accepted: int, parts: int) -> None:
        branch = self._branches[-1]
        self.rounds.append(number)
        self.ends.append(len(branch.tokens))
        self.text_ends.append(len(branch.texts[0]))
        self.sums.append((self.sums[-1] if self.sums else 0) + accepted)
        self._parts.append((self._parts[-1] if self._parts else 0) + parts)

    def _branch_at(self, number: int | None) -> Branch:
        if number is None or len(self._branches) == 1:
            return self._branches[-1]
        return next(branch for branch in reversed(self._branches) if branch.begin <= number)

    @property
    def tokens(self) -> list[int]:
        """All committed tokens, the prompt's among them."""
        return self._branches[-1].tokens

    def tokens_at(self, number: int) -> list[int]:
        """The tokens that a round sees; those of later rounds may follow."""
        return self._branch_at(number).tokens

    @property
    def text(self) -> str:
        return self._branches[-1].texts[0]

    @property
    def finish_reason(self) -> str:
        """How the row ended, where it has."""
        return self._finishes[-1][1] if self._finishes else ""

    def count_at(self, number: int) -> int:
        """How many entries there are up to round `number`: 0 before the row begins."""
        return bisect_right(self.rounds, number)

    def length_at(self, number: int) -> int:
        """Committed tokens after round `number`, the prompt's among them."""
        count = self.count_at(number)
        return self.ends[count - 1] if count else self.prompt_length

    def text_at(self, number: int) -> tuple[str, str]:
        """The generated text before round `number`, and what that round added."""
        count = self.count_at(number)
        if not count:
            return "", ""
        text = self._branch_at(number).texts[0]
        end = self.text_ends[count - 1]
        if self.rounds[count - 1] != number:
            return text[:end], ""
        begin = min(end, self.text_ends[count - 2] if count > 1 else 0)
        return text[:begin], text[begin:end]

    def mean_accepted_at(self, number: int) -> float:
        count = self.count_at(number)
        parts = self._parts[count - 1] if count else 0
        return self.sums[count - 1] / parts if parts else 0.0

    def finished_at(self, number: int) -> bool:
        """Whether the row has ended by round `number`."""
        for at, reason in reversed(self._finishes):
            if at <= number:
                return bool(reason)
        return False
