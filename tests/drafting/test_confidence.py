"""How often a draft token comes true, by how sure its source is."""

from __future__ import annotations

from engine.drafting.confidence import BINS, Confidence


def test_chances_are_how_often_draft_tokens_as_certain_came_true() -> None:
    confidence = Confidence()
    before, kind = confidence.chance(0.95)
    assert kind == BINS - 1
    assert before > 0.9
    for _ in range(200):
        confidence.learn([kind], accepted=0)
    assert confidence.chance(0.95)[0] < 0.05
    assert confidence.chance(0.55)[0] > 0.4, "nothing was learned of tokens of another kind"


def test_a_draft_token_behind_a_rejected_one_says_nothing() -> None:
    confidence, fresh = Confidence(), Confidence()
    confidence.learn([5, 6, 7], accepted=1)
    shares = [(kind + 0.5) / BINS for kind in range(BINS)]
    changed = [k for k, s in enumerate(shares) if confidence.chance(s) != fresh.chance(s)]
    assert changed == [5, 6]
