"""Draft tokens without a model: from the row's own text, and from a table of n-grams."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from engine.config.settings import LARGEST_AUTO
from engine.drafting.confidence import Confidence
from engine.drafting.ngram_table import NgramTable
from engine.rounds.draft_model import DraftTokens
from engine.rounds.layout import Layout
from engine.rounds.sampling import Sampler
from engine.rounds.sequence import Sequence

LONGEST = 3
"""Longest suffix that is searched in the row's own text, in tokens."""

ENOUGH = 0.15
"""Chance of acceptance from which an n-gram is drafted, whatever K is."""

TRUST = 0.75
"""How often a n-gram comes true here, for each time it did where n-grams were counted: rough,
from the answers to the built-in prompts."""

FIRST_GUESS = {1: (0.15, 0.5), 2: (0.35, 0.6), 3: (0.6, 0.8)}
"""By matched length: chance that the first draft token is accepted, and each one after an
accepted one. Rough, from instruction answers; each run learns its own."""


@dataclass(frozen=True)
class Found:
    """What a row could draft.

    Attributes:
        tokens: in order.
        chances: that the first, the first two, … of them are accepted.
        size: matched length in the row's own text; 0: it is no match.
        kinds: of n-grams, by how common each was (`engine.drafting.confidence`).
    """

    tokens: list[int]
    chances: list[float]
    size: int = 0
    kinds: list[int] = field(default_factory=list)

    def likely(self, least: float) -> bool:
        """Whether the first token is accepted with at least such a chance."""
        return bool(self.chances) and self.chances[0] >= least


NOTHING = Found([], [])


class LookupDraft:
    """Prompt lookup: the longest suffix of the row (3 tokens, else 2, else 1) is searched
    in its own text, and the tokens after its latest earlier occurrence are drafted.

    A row without a match drafts nothing that round. Each draft token is certain (q is
    one-hot), so acceptance stays lossless under sampling too.

    Args:
        threshold: a row stops before a token if the chance that it and all before it are
            accepted, as learned by matched length, is smaller. 0: never.
    """

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = threshold
        self._indexes: dict[int, SuffixIndex] = {}
        self._made: dict[int, Found] = {}
        self._chances = {size: Chance(*guess) for size, guess in FIRST_GUESS.items()}

    def draft(self, layout: Layout, draft_tokens: int, sampler: Sampler) -> DraftTokens:
        return self.draft_up_to(layout, [row.draft_limit(draft_tokens) for row in layout.rows])

    def draft_up_to(self, layout: Layout, counts: list[int], least: float = 0.0) -> DraftTokens:
        """Draft at most `counts[place]` tokens for each row.

        Args:
            least: chance of acceptance that the first of them must have.
        """
        found = []
        for row, count in zip(layout.rows, counts, strict=True):
            index = self._indexes.setdefault(row.index, SuffixIndex())
            index.extend(row)
            found.append(self.continuation(index, row, count, least) if count else NOTHING)
        made = [
            sum(chance >= self.threshold for chance in continuation.chances)
            for continuation in found
        ]
        self._made = {
            row.index: continuation
            for row, continuation, depth in zip(layout.rows, found, made, strict=True)
            if depth  # what is not drafted teaches nothing
        }
        width = max(made, default=0)
        tokens = torch.zeros((len(found), width), dtype=torch.int64)
        for place, (continuation, depth) in enumerate(zip(found, made, strict=True)):
            tokens[place, :depth] = torch.tensor(continuation.tokens[:depth], dtype=torch.int64)
        texts = tuple(place for place, depth in enumerate(made) if depth)
        return DraftTokens(tokens, made, texts=texts)

    def continuation(self, index: SuffixIndex, row: Sequence, count: int, least: float) -> Found:
        """What one row could draft: `count` tokens at most."""
        size, tokens = index.continuation(row, count)
        match = self.match(size, tokens) if size else NOTHING
        return match if match.likely(least) else NOTHING

    def match(self, size: int, tokens: list[int]) -> Found:
        """What followed a match of so many tokens."""
        return Found(tokens, self._chances[size].joint(len(tokens)), size)

    def learn(self, layout: Layout, row: Sequence, accepted: int, drafted: int) -> None:
        made = self._made.pop(row.index, NOTHING)
        if made.size:
            self._chances[made.size].learn(accepted, drafted)


class NgramDraft(LookupDraft):
    """A match of three tokens in the row's own text first, else the target's n-grams.

    How often a n-gram that was so common is accepted is learned in the run, for texts are not
    those in which n-grams were counted.

    Args:
        table: what the target habitually writes.
    """

    def __init__(self, table: NgramTable, threshold: float = 0.0) -> None:
        super().__init__(threshold)
        self.table = table
        self._ngrams = Confidence(TRUST)

    def continuation(self, index: SuffixIndex, row: Sequence, count: int, least: float) -> Found:
        size, tokens = index.continuation(row, count)
        match = self.match(size, tokens) if size == LONGEST else NOTHING
        if match.likely(least):
            return match
        return self.ngram(row, count, max(ENOUGH, self.threshold, least))

    def ngram(self, row: Sequence, count: int, least: float) -> Found:
        """What usually comes next, as far as all of it is accepted with such a chance."""
        recent = [int(token) for token in row.tokens[-LONGEST - 1 :]]
        found = Found([], [])
        joint = 1.0
        for token, share in self.table.follow(recent, count):
            chance, kind = self._ngrams.chance(share)
            joint *= chance
            if joint < least:
                break
            found.tokens.append(token)
            found.chances.append(joint)
            found.kinds.append(kind)
        return found

    def learn(self, layout: Layout, row: Sequence, accepted: int, drafted: int) -> None:
        kinds = self._made.get(row.index, NOTHING).kinds
        super().learn(layout, row, accepted, drafted)
        self._ngrams.learn(kinds[:drafted], accepted)


class Chance:
    """How draft tokens of one kind fare: each after accepted ones, by how deep it is.

    Args:
        first, more: a first guess: of the first draft token, and of each after it.
        weight: draft tokens that the guess counts for.
    """

    def __init__(self, first: float, more: float, weight: float = 10.0) -> None:
        self._hits = weight * np.array([first, *[more] * (LARGEST_AUTO - 1)])
        self._trials = np.full(LARGEST_AUTO, weight)

    def joint(self, count: int) -> list[float]:
        """Chances that the first draft token, the first two, … of `count` are all accepted."""
        joint: list[float] = (self._hits / self._trials)[_depths(count)].cumprod().tolist()
        return joint

    def learn(self, accepted: int, drafted: int) -> None:
        """Note one row's fate."""
        np.add.at(self._trials, _depths(min(accepted + 1, drafted)), 1.0)
        np.add.at(self._hits, _depths(accepted), 1.0)


def _depths(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Where the first `count` draft tokens are counted: all of the deepest together."""
    return np.minimum(np.arange(count), LARGEST_AUTO - 1)


class SuffixIndex:
    """Where each n-gram of a row was seen last but before its end; grows with the row."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._done = 0

    def extend(self, row: Sequence) -> None:
        """Enter the n-grams that end before the row's last token."""
        tokens = row.tokens
        if self._done > row.length:  # the row was taken back
            self._after.clear()
            self._done = 0
        for end in range(max(self._done, 1), row.length):
            for size in range(1, min(LONGEST, end) + 1):
                self._after[tuple(tokens[end - size : end].tolist())] = end
        self._done = row.length

    def continuation(self, row: Sequence, count: int) -> tuple[int, list[int]]:
        """Length of the match (0: none), and up to `count` tokens that followed it."""
        tokens = row.tokens
        for size in range(min(LONGEST, row.length - 1), 0, -1):
            start = self._after.get(tuple(tokens[row.length - size :].tolist()))
            if start is not None:
                return size, [int(token) for token in tokens[start : start + count]]
        return 0, []
