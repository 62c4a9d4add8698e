"""Which drafter a run has, and which policy chooses its K."""

from __future__ import annotations

from engine.config.settings import Settings
from engine.drafting.auto_k import THRESHOLD, AutoPolicy
from engine.drafting.hybrid import HybridDraft
from engine.drafting.ngram_table import NgramTable
from engine.drafting.prompt_lookup import LookupDraft, NgramDraft
from engine.models.causal_lm import LanguageModel
from engine.rounds.draft_model import Drafter, ModelDraft, NoDraft
from engine.rounds.draft_policy import DraftPolicy, Fixed
from engine.rounds.method import Method


def build_drafting(
    method: Method,
    settings: Settings,
    draft: LanguageModel | None,
    ngrams: NgramTable | None,
    *,
    prompt_lookup: bool,
) -> tuple[DraftPolicy, Drafter]:
    """Return how many tokens are drafted, and what drafts them.

    A draft model drafts where there is one; else prompt lookup does, and the n-gram table.

    Args:
        draft: the pair's draft model.
        ngrams: the pair's n-gram table.
        prompt_lookup: whether text is drafted before the draft model is asked.
    """
    if method.drafter is None or settings.draft_tokens == 0:
        return Fixed(0), NoDraft()
    hybrid = draft is not None and prompt_lookup and method.drafter is ModelDraft
    policy: Fixed | AutoPolicy
    if settings.draft_tokens == "auto":
        policy, threshold = AutoPolicy(free_text=hybrid), THRESHOLD
        free_tokens = policy.largest
    else:
        policy, threshold, free_tokens = Fixed(settings.draft_tokens), 0.0, 0
    if draft is not None:
        drafter = method.drafter(draft.context, threshold)
        if hybrid:
            text = NgramDraft(ngrams or NgramTable({}), threshold)
            return policy, HybridDraft(drafter, text, free_tokens)
        return policy, drafter
    if ngrams is not None:
        return policy, NgramDraft(ngrams, threshold)
    return policy, LookupDraft(threshold)
