"""Two drafts in one: the row's own text where it repeats itself, a draft model elsewhere.

Text that repeats itself (a summary, a translation, code) is the best draft there is while
it lasts, and costs nothing; a model is better at all the rest. The model is not run in a
round in which every row has found something in its own text.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from engine.drafting.prompt_lookup import NgramDraft
from engine.rounds.draft_model import DraftTokens, ModelDraft
from engine.rounds.layout import Layout
from engine.rounds.sampling import Sampler
from engine.rounds.sequence import Sequence

WORTH = 0.5
"""Chance of acceptance from which text is preferred to the model: a match of three tokens, or an
n-gram. With less to go by the model knows better."""


class HybridDraft:
    """Each row's draft tokens come from one of two drafts.

    Args:
        model: asked for rows of which text says nothing.
        text: comes first.
        text_tokens: K of the text where that of the round is smaller: under
            `--draft-tokens auto` a K of 0 spares the model's forwards, and text takes none.
    """

    def __init__(self, model: ModelDraft, text: NgramDraft, text_tokens: int = 0) -> None:
        self._model = model
        self._text = text
        self._text_tokens = text_tokens
        self._by_text: set[int] = set()

    def draft(self, layout: Layout, draft_tokens: int, sampler: Sampler) -> DraftTokens:
        most = max(draft_tokens, self._text_tokens)
        # what is given by hand is put into the model's mouth
        free = [0 if sampler.forced(row) else row.draft_limit(most) for row in layout.rows]
        found = self._text.draft_up_to(layout, free, WORTH if draft_tokens else 0.0)
        asked = [
            0 if taken else self._model.limit(row, draft_tokens)
            for row, taken in zip(layout.rows, found.counts, strict=True)
        ]
        self._by_text = {layout.rows[place].index for place in found.texts}
        return merged(found, self._model.draft_up_to(layout, asked, sampler))

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
