"""Rows stop drafting where the draft is unsure: what is learned, and what it saves."""

from __future__ import annotations

import torch

from engine.config.settings import Settings
from engine.drafting.auto_k.confidence import BINS, Confidence, Stopping
from engine.drafting.auto_k.costs import Costs
from engine.drafting.auto_k.price import Price
from engine.evaluation.oracle import Oracle
from engine.records.schema import RoundRecord, Summary
from engine.rounds.draft_model import ModelDraft
from engine.runs.run import Run
from tests.tiny import mixed_prompts, tiny_pair


class Known(Costs):
    """Costs that do not depend on the clock."""

    def __init__(self, token: float, worth: float = 0.0) -> None:
        super().__init__()
        self._token, self._worth = token, worth

    def price(self, otherwise: float) -> Price:
        return Price(token=self._token)

    def draft_tokens_worth(self) -> float:
        return self._worth


def logits_of(*certainties: float) -> torch.Tensor:
    """Two columns, of which the first has the given probability."""
    p = torch.tensor(certainties)
    return torch.stack([p.log(), (1 - p).log()], dim=1)


def test_chances_are_what_became_of_draft_tokens_as_certain() -> None:
    confidence = Confidence()
    (before,), (kind,) = confidence.chances(logits_of(0.95))
    assert kind == BINS - 1
    assert before > 0.9
    for _ in range(200):
        confidence.learn([kind], accepted=0)
    (after,), _ = confidence.chances(logits_of(0.95))
    assert after < 0.05
    (other,), _ = confidence.chances(logits_of(0.55))
    assert other > 0.4, "nothing was learned of draft tokens of another kind"


def test_a_draft_token_behind_a_rejected_one_says_nothing() -> None:
    confidence = Confidence()
    confidence.learn([5, 6, 7], accepted=1)
    fresh = Confidence()
    changed = [k for k in range(BINS) if confidence._trials[k] != fresh._trials[k]]
    assert changed == [5, 6]


def test_a_row_stops_by_the_chance_that_all_its_draft_tokens_are_accepted() -> None:
    stopping = Stopping(Confidence(), Known(0.5), [4, 4, 1], [0, 0, 0])
    assert stopping.goes_on(0, logits_of(0.95, 0.6, 0.95))
    # row 1: 0.6 · 0.6 is too little; row 2 may draft no more
    assert stopping.goes_on(1, logits_of(0.95, 0.6, 0.95))
    assert stopping.counts == [4, 1, 1]
    assert not stopping.goes_on(2, logits_of(0.51, 0.99, 0.99))
    assert stopping.counts == [2, 1, 1]
    assert [len(kinds) for kinds in stopping.kinds] == [2, 1, 1]


def test_the_draft_is_not_run_for_less_than_it_costs() -> None:
    dear = Stopping(Confidence(), Known(0.1, worth=2.0), [4, 4], [0, 0])
    assert dear.goes_on(0, logits_of(0.9, 0.9))
    assert not dear.pays(1)
    assert dear.counts == [1, 1]
    cheap = Stopping(Confidence(), Known(0.1, worth=0.2), [4, 4], [0, 0])
    assert cheap.goes_on(0, logits_of(0.9, 0.9))
    assert cheap.pays(1)


def test_what_is_given_by_hand_is_drafted_whatever_it_is_worth() -> None:
    stopping = Stopping(Confidence(), Known(0.9, worth=9.0), [4, 4], [2, 0])
    unsure = logits_of(0.5, 0.5)
    assert stopping.goes_on(0, unsure)
    assert stopping.pays(1)
    assert stopping.goes_on(1, unsure)
    assert stopping.counts == [4, 0]
    assert not stopping.pays(2)
    assert stopping.counts == [2, 0]


def test_outputs_stay_the_targets_and_fewer_draft_tokens_are_wasted() -> None:
    pair = tiny_pair(noise=0.08)
    assert pair.draft is not None
    prompts = mixed_prompts(6, seed=3)
    settings = Settings(method="slotspec", batch_size=3, draft_tokens=4, max_new_tokens=24)
    found = {}
    for least in (0.0, 0.25):
        run = Run(pair, settings, prompts)
        run.loop.drafter = ModelDraft(pair.draft.context, Known(least))
        *records, summary = run.records()
        assert isinstance(summary, Summary)
        answers = Oracle(pair).answers(prompts, Settings(max_new_tokens=24))
        assert [r.output_ids for r in summary.rows] == [a.output_ids for a in answers]
        rounds = [record for record in records if isinstance(record, RoundRecord)]
        assert not [violation for record in rounds for violation in record.violations]
        accepted, drafted = (
            sum(getattr(row, name) for row in summary.rows) for name in ("accepted", "drafted")
        )
        found[least] = accepted / drafted
        counts = {len(row.draft_token_ids) for record in rounds for row in record.rows}
    assert len(counts) > 2, "rows never stopped at different places"
    assert found[0.25] > found[0.0]
