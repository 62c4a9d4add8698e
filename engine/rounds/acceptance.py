"""Which draft tokens are accepted, and what the target adds."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch

from engine.models.host_transfer import Crossing
from engine.records.row import AcceptTest, BonusChoice
from engine.rounds.draft_model import DraftTokens
from engine.rounds.packed_logits import Logits
from engine.rounds.rejection_sampler import Rejection
from engine.rounds.sampling import Sampler
from engine.rounds.sequence import Sequence


@dataclass(frozen=True)
class Verdict:
    """Which draft tokens of one row are accepted, and the token after them.

    Attributes:
        draft_token_ids: the row's K_i draft tokens.
        accepted: length of the accepted prefix.
        bonus: the token that the target adds after it; None where it adds none.
        choices: the target's own choice after each fed token (greedy), K_i + 1 of them; none
            where they did not decide.
        finite: whether all of the row's logits were finite numbers.
        tests, choice, forced: what an inspected run tells of them (`engine.microscope.inspect`).
    """

    draft_token_ids: tuple[int, ...]
    accepted: int
    bonus: int | None
    choices: tuple[int, ...] = ()
    finite: bool = True
    tests: tuple[AcceptTest, ...] = field(default=())
    choice: BonusChoice | None = None
    forced: int = 0

    @property
    def block(self) -> list[int]:
        """The tokens to commit, in order."""
        accepted = list(self.draft_token_ids[: self.accepted])
        return accepted if self.bonus is None else [*accepted, self.bonus]


Compare = Callable[[Sequence, Seq[int], Seq[int]], int]
"""How many of a row's draft tokens are accepted, given the target's own choices in their places."""


def leading_matches(row: Sequence, draft_token_ids: Seq[int], choices: Seq[int]) -> int:
    """The matching prefix: greedy decoding's comparison."""
    accepted = 0
    while accepted < len(draft_token_ids) and draft_token_ids[accepted] == choices[accepted]:
        accepted += 1
    return accepted


class Acceptance:
    """The accepted prefix, and one bonus token of the target's own (paper §3).

    K accepted draft tokens put the bonus at position K, so a round commits 1 … K + 1 tokens.
    Greedy decoding compares ids; sampling is the rejection rule of
    `engine.rounds.rejection_sampler`.

    Args:
        compare: greedy decoding's comparison, or what stands in for it
            (`engine.rounds.synthetic_acceptance`).
    """

    def __init__(self, compare: Compare = leading_matches) -> None:
        self._compare = compare

    @property
    def synthetic(self) -> bool:
        """Whether a pattern decides what is accepted, and not the target."""
        return self._compare is not leading_matches

    def judge(
        self, logits: Logits, drafted: DraftTokens, rows: list[Sequence], sampler: Sampler
    ) -> list[Verdict]:
        """Judge all rows; ids and choices cross to the host once.

        Args:
            logits: the target's.
        """
        highest, best = logits.best()  # a NaN or +inf anywhere in a row is its maximum
        finite = highest.isfinite().to(torch.int64)
        fed = drafted.tokens.to(logits.device)
        rejection = None
        if not sampler.sampling.greedy:
            q = None if drafted.probs is None else drafted.probs.to(logits.device)
            p, seed = sampler.warp(logits.whole), sampler.sampling.seed
            rejection = Rejection(p, q, fed, drafted.counts, rows, seed)
        parts = [fed, best, finite, *(rejection.parts if rejection else ())]
        fed_ids, chosen, fine, *rest = Crossing(parts).arrived()
        outcomes = rejection.outcomes(rest) if rejection else None
        verdicts = []
        for place, (row, count) in enumerate(zip(rows, drafted.counts, strict=True)):
            tokens = tuple(fed_ids[place, :count].tolist())
            choices = tuple(chosen[place, : count + 1].tolist())
            good = bool(fine[place, : count + 1].all())
            if good and outcomes is not None:
                drawn = outcomes[place]
                verdict = Verdict(tokens, drawn.accepted, drawn.bonus, tests=drawn.tests)
            else:
                accepted = self._compare(row, tokens, choices)
                decided = () if self.synthetic else choices
                verdict = Verdict(tokens, accepted, choices[accepted], decided, good)
            verdicts.append(verdict)
        return verdicts
