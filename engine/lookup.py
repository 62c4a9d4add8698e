"""Proposals without a model: what followed the same words earlier in the row's own text."""

from __future__ import annotations

import torch

from engine.draft import Proposals
from engine.layout.base import Layout
from engine.sampling import Sampler
from engine.sequence import Sequence

LONGEST = 3
"""Longest suffix that is matched, in tokens."""


class LookupDraft:
    """Prompt lookup: the longest suffix of the row (3 tokens, else 2, else 1) is searched
    in its own text, and the tokens after its latest earlier occurrence are proposed.

    A row without a match proposes nothing that round. Each proposal is certain (q is
    one-hot), so acceptance stays lossless under sampling too.
    """

    def __init__(self) -> None:
        self._indexes: dict[int, _SuffixIndex] = {}

    def limit(self, row: Sequence, draft_tokens: int) -> int:
        return row.draft_limit(draft_tokens)

    def propose(self, layout: Layout, counts: list[int], sampler: Sampler) -> Proposals:
        found: list[list[int]] = []
        for row, count in zip(layout.rows, counts, strict=True):
            index = self._indexes.setdefault(row.index, _SuffixIndex())
            index.extend(row)
            found.append(index.continuation(row, count) if count else [])
        width = max((len(tokens) for tokens in found), default=0)
        block = [tokens + [0] * (width - len(tokens)) for tokens in found]
        tokens = torch.tensor(block, dtype=torch.int64).reshape(len(found), width)
        return Proposals(tokens, [len(tokens) for tokens in found])

    def learn(self, layout: Layout, row: Sequence, accepted: int, proposed: int) -> None:
        pass


class _SuffixIndex:
    """Where each n-gram of a row was seen last but before its end; grows with the row."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._done = 0

    def extend(self, row: Sequence) -> None:
        """Enter the n-grams that end before the row's last token."""
        tokens = row.tokens
        if self._done > row.length - 1:  # the row was taken back
            self._after.clear()
            self._done = 0
        for end in range(max(self._done, 1), row.length):
            for size in range(1, min(LONGEST, end) + 1):
                self._after[tuple(tokens[end - size : end].tolist())] = end
        self._done = row.length

    def continuation(self, row: Sequence, count: int) -> list[int]:
        """Up to `count` tokens that followed the latest earlier match of the row's suffix."""
        tokens = row.tokens
        for size in range(min(LONGEST, row.length - 1), 0, -1):
            start = self._after.get(tuple(tokens[row.length - size :].tolist()))
            if start is not None:
                return [int(token) for token in tokens[start : start + count]]
        return []
