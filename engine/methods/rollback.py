"""Every row is cut back to the batch's shortest acceptance: no raggedness, much waste.

The rectangle never has to be realigned, since all rows grow alike; what the other rows
accepted beyond the shortest has to be drafted and verified again.
"""

from __future__ import annotations

from dataclasses import replace

from engine.methods.eqspec import Rectangle
from engine.rounds.acceptance import Acceptance, Verdict
from engine.rounds.draft_model import DraftTokens
from engine.rounds.method import Method
from engine.rounds.packed_logits import Logits
from engine.rounds.sampling import Sampler
from engine.rounds.sequence import Sequence


class Shortest(Acceptance):
    """Accept in each row only as many draft tokens as the worst row did.

    A row that accepted more commits its own next accepted token as the last one, in place
    of a bonus token.
    """

    def judge(
        self, logits: Logits, drafted: DraftTokens, rows: list[Sequence], sampler: Sampler
    ) -> list[Verdict]:
        verdicts = super().judge(logits, drafted, rows, sampler)
        shortest = min((v.accepted for v in verdicts if v.finite), default=0)
        return [
            v
            if v.accepted <= shortest
            else replace(v, accepted=shortest, bonus=v.draft_token_ids[shortest])
            for v in verdicts
        ]


METHOD = Method(layout=Rectangle, accept=Shortest)
