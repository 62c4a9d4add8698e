"""Two drafts in one: the row's own text where it repeats itself, a draft model elsewhere.

Text that repeats itself (a summary, a translation, code) is the best draft there is while
it lasts, and costs nothing; a model is better at all the rest. The model is not run in a
round in which every row has found something in its own text.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.config.settings import LARGEST_AUTO
from engine.drafting.auto_k.price import LEAST
from engine.drafting.prompt_lookup import LONGEST, Found, NgramDraft, SuffixIndex
from engine.rounds.draft_model import DraftTokens, ModelDraft
from engine.rounds.layout import Layout
from engine.rounds.sampling import Sampler
from engine.rounds.sequence import Sequence

WORTH = 0.5
"""Chance of acceptance from which text is preferred to the model."""


class SureText(NgramDraft):
    """Where a draft model is asked too: matches of three tokens in the row's own text, and
    what the target nearly always says next, for with less to go by the model knows better.

    Attributes:
        least: chance of acceptance from which a text is preferred to the model's draft tokens.
    """

    least = WORTH

    def continuation(self, index: SuffixIndex, row: Sequence, count: int) -> Found:
        size, tokens = index.continuation(row, count)
        if size == LONGEST:
            match = self.match(size, tokens)
            if match.chances and match.chances[0] >= self.least:
                return match
        return self.ngram(row, count, max(self.least, LEAST))


class HybridDraft:
    """Each row's draft tokens come from one of two drafts.

    Args:
        model: asked for rows of which text says nothing.
        text: comes first.
    """

    def __init__(self, model: ModelDraft, text: SureText) -> None:
        self._model = model
        self._text = text
        self._asked = 0
        self._by_text: set[int] = set()

    def limit(self, row: Sequence, draft_tokens: int) -> int:
        self._asked = draft_tokens
        # under `auto`, K is what the model's forwards are worth; text costs none
        free = self._text.costs is not None
        return self._text.limit(row, LARGEST_AUTO if free else draft_tokens)

    def draft(self, layout: Layout, counts: list[int], sampler: Sampler) -> DraftTokens:
        # what is given by hand is put into the model's mouth
        free = [
            0 if sampler.forced(row) else count
            for row, count in zip(layout.rows, counts, strict=True)
        ]
        found, asked = self._divided(layout, counts, free, sampler)
        self._by_text = {layout.rows[place].index for place in found.texts}
        return merged(found, self._model.draft(layout, asked, sampler))

    def _divided(
        self, layout: Layout, counts: list[int], free: list[int], sampler: Sampler
    ) -> tuple[DraftTokens, list[int]]:
        """What text drafts, and how many draft tokens the model is asked for of each row.

        Where few rows would ask it, it is not asked at all, and text says what it can.
        """
        if self._asked:
            self._text.least = WORTH
            found = self._text.draft(layout, free, sampler)
            asked = [
                0 if taken else min(count, self._model.limit(row, self._asked))
                for row, count, taken in zip(layout.rows, counts, found.counts, strict=True)
            ]
            given = any(sampler.forced(row) for row in layout.rows)
            if given or self._model.worth_asking(sum(count > 0 for count in asked)):
                return found, asked
        if self._text.costs is not None:
            self._text.costs.skipped = True
        self._text.least = 0.0
        return self._text.draft(layout, free, sampler), [0] * len(counts)

    def learn(self, layout: Layout, row: Sequence, accepted: int, drafted: int) -> None:
        if row.index in self._by_text:
            self._text.learn(layout, row, accepted, drafted)
        else:
            self._model.learn(layout, row, accepted, drafted)


def merged(certain: DraftTokens, drawn: DraftTokens) -> DraftTokens:
    """Draft tokens of both, each row having some of one of them at most.

    Those that are certain have a one-hot q where the others have one (sampling).
    """
    width = max(certain.tokens.shape[1], drawn.tokens.shape[1])
    device = drawn.tokens.device
    ours, theirs = (_widened(side.tokens.to(device), width) for side in (certain, drawn))
    places = certain.texts
    first = torch.zeros(len(certain.counts), dtype=torch.bool, device=device)
    first[list(places)] = True
    tokens = torch.where(first[:, None], ours, theirs)
    counts = [a or b for a, b in zip(certain.counts, drawn.counts, strict=True)]
    if drawn.probs is None:
        return DraftTokens(tokens, counts, texts=places)
    probs = pad(drawn.probs, (0, 0, 0, width - drawn.probs.shape[1]))
    known = torch.zeros_like(probs).scatter_(2, tokens[:, :, None], 1.0)
    return DraftTokens(tokens, counts, torch.where(first[:, None, None], known, probs), places)


def _widened(tokens: Tensor, width: int) -> Tensor:
    return pad(tokens, (0, width - tokens.shape[1]))
