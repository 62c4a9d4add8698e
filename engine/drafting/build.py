"""Which drafter a run has, and which policy chooses its K."""

from __future__ import annotations

from engine.config.settings import Settings
from engine.drafting.auto_k.adaptive import Adaptive, Auto, Selective
from engine.drafting.auto_k.costs import Costs
from engine.drafting.hybrid import HybridDraft, SureText
from engine.drafting.ngram_table import NgramTable
from engine.drafting.prompt_lookup import LookupDraft, NgramDraft
from engine.models.causal_lm import LanguageModel
from engine.rounds.acceptance import Acceptance
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
    policy: DraftPolicy
    costs = None
    if settings.draft_tokens == "auto":
        costs = Costs()
        auto: Auto = Selective(costs) if draft is None else Adaptive(costs)
        auto.hurries = method.drafter is ModelDraft and method.accept is Acceptance
        policy = auto
    else:
        policy = Fixed(settings.draft_tokens)
    if draft is not None:
        drafter = method.drafter(draft.context, costs)
        if prompt_lookup and method.drafter is ModelDraft:
            return policy, HybridDraft(drafter, SureText(ngrams or NgramTable({}), costs))
        return policy, drafter
    if ngrams is not None:
        return policy, NgramDraft(ngrams, costs)
    return policy, LookupDraft(costs)
