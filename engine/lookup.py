"""Proposals without a model: from the row's own text, and from a table of phrases."""

from __future__ import annotations

import torch

from engine.confidence import Confidence
from engine.costs import Costs
from engine.draft import Proposals
from engine.layout.base import Layout
from engine.phrases import PhraseTable
from engine.sampling import Sampler
from engine.sequence import Sequence

LONGEST = 3
"""Longest suffix that is searched in the row's own text, in tokens."""

ENOUGH = 0.2
"""Chance of acceptance from which a phrase is proposed while costs are not known."""

FIRST_GUESS = {1: (0.15, 0.5), 2: (0.35, 0.6), 3: (0.6, 0.8)}
"""By matched length: chance that the first proposal is accepted, and each one after an
accepted one. Rough, from instruction answers; each run learns its own."""


class LookupDraft:
    """Prompt lookup: the longest suffix of the row (3 tokens, else 2, else 1) is searched
    in its own text, and the tokens after its latest earlier occurrence are proposed.

    A row without a match proposes nothing that round. Each proposal is certain (q is
    one-hot), so acceptance stays lossless under sampling too.

    Args:
        costs: where given (`--draft-tokens auto`), proposals that do not pay are left
            out: those whose chance of acceptance, learned by matched length, is below
            what a token costs. It depends on nothing but what was committed and measured
            before.
    """

    def __init__(self, costs: Costs | None = None) -> None:
        self.costs = costs
        self._indexes: dict[int, SuffixIndex] = {}
        self._matched: dict[int, int] = {}
        self._chances = {size: Chance(*guess) for size, guess in FIRST_GUESS.items()}

    def limit(self, row: Sequence, draft_tokens: int) -> int:
        return row.draft_limit(draft_tokens)

    def propose(self, layout: Layout, counts: list[int], sampler: Sampler) -> Proposals:
        least = 0.0 if self.costs is None else self.costs.least_chance(ENOUGH)
        found: list[list[int]] = []
        for row, count in zip(layout.rows, counts, strict=True):
            index = self._indexes.setdefault(row.index, SuffixIndex())
            index.extend(row)
            found.append(self.continuation(index, row, count, least) if count else [])
        width = max((len(tokens) for tokens in found), default=0)
        block = [tokens + [0] * (width - len(tokens)) for tokens in found]
        tokens = torch.tensor(block, dtype=torch.int64).reshape(len(found), width)
        texts = tuple(place for place, tokens in enumerate(found) if tokens)
        return Proposals(tokens, [len(tokens) for tokens in found], texts=texts)

    def continuation(
        self, index: SuffixIndex, row: Sequence, count: int, least: float
    ) -> list[int]:
        """What one row proposes: `count` tokens at most, worth `least` at least."""
        size, tokens = index.continuation(row, count)
        self._matched[row.index] = size
        return tokens[: self._chances[size].worth(least, count)] if size else []

    def learn(self, layout: Layout, row: Sequence, accepted: int, proposed: int) -> None:
        size = self._matched.pop(row.index, 0)
        if size:
            self._chances[size].learn(accepted, proposed)


class PhraseDraft(LookupDraft):
    """A match of three tokens in the row's own text first, else the target's phrases.

    How often a phrase that was so common is accepted is learned in the run, for texts are not
    those in which phrases were counted.

    Args:
        table: what the target habitually writes.
    """

    def __init__(self, table: PhraseTable, costs: Costs | None = None) -> None:
        super().__init__(costs)
        self.table = table
        self._phrases = Confidence()
        self._kinds: dict[int, list[int]] = {}

    def continuation(
        self, index: SuffixIndex, row: Sequence, count: int, least: float
    ) -> list[int]:
        size, tokens = index.continuation(row, count)
        if size == LONGEST:
            self._matched[row.index] = size
            return tokens[: self._chances[size].worth(least, count)]
        return self.phrase(row, count, least or ENOUGH)

    def phrase(self, row: Sequence, count: int, least: float) -> list[int]:
        """What usually comes next, as far as all of it is accepted with such a chance."""
        recent = [int(token) for token in row.tokens[-LONGEST - 1 :]]
        found: list[int] = []
        kinds = self._kinds.setdefault(row.index, [])
        kinds.clear()
        joint = 1.0
        for token, share in self.table.follow(recent, count):
            chance, kind = self._phrases.chance(share)
            joint *= chance
            if joint < least:
                break
            found.append(token)
            kinds.append(kind)
        return found

    def learn(self, layout: Layout, row: Sequence, accepted: int, proposed: int) -> None:
        super().learn(layout, row, accepted, proposed)
        self._phrases.learn(self._kinds.pop(row.index, []), accepted)


class Chance:
    """How proposals of one kind fare: the first one, and each after an accepted one."""

    def __init__(self, first: float, more: float, weight: float = 10.0) -> None:
        self._hits = [first * weight, more * weight]
        self._trials = [weight, weight]

    def worth(self, least: float, count: int) -> int:
        """How many proposals have a joint chance of at least `least`."""
        first, more = (hits / trials for hits, trials in zip(self._hits, self._trials, strict=True))
        taken = 0
        while taken < count and first * more**taken >= least:
            taken += 1
        return taken

    def learn(self, accepted: int, proposed: int) -> None:
        """Note one row's fate."""
        if proposed:
            self._trials[0] += 1
            self._hits[0] += accepted >= 1
            self._trials[1] += min(accepted, proposed - 1)
            self._hits[1] += max(0, accepted - 1)


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
