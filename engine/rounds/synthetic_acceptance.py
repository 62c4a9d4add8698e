"""Synthetic acceptance: a seeded pattern in place of the comparison.

What raggedness costs depends on how many draft tokens are accepted and how unlike the rows are,
and not on which tokens they are. Here both are given: row i accepts each draft token with
probability r_i, up to the first that it does not. Everything else stays the same: what was
accepted was fed, so its K/V are valid, and the bonus is the target's own choice after it. The
texts are not what the target would write.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from engine.config.settings import Settings
from engine.rounds.sampling import uniform
from engine.rounds.sequence import Sequence

PATTERN, RATE = 3, 4
"""The purposes of a random number, beside those of `engine.rounds.sampling`."""


class SyntheticAcceptance:
    """Which draft tokens are accepted.

    The draw for a draft token is keyed by its row and its place in the row: neither the
    neighbours nor the method changes it.
    """

    def __init__(self, settings: Settings) -> None:
        assert settings.force_accept is not None
        self._rate = settings.force_accept
        self._spread = settings.force_spread
        self._seed = settings.sampling.seed

    def rate_of(self, request: int) -> float:
        """r_i, which lies evenly within the spread about the rate."""
        return self._rate + self._spread * (2.0 * uniform(self._seed, request, 0, RATE) - 1.0)

    def __call__(self, row: Sequence, draft_token_ids: Seq[int], choices: Seq[int]) -> int:
        """How many draft tokens of a row are accepted, whatever they are."""
        rate = self.rate_of(row.index)
        accepted = 0
        while (
            accepted < len(draft_token_ids)
            and uniform(self._seed, row.index, row.length + accepted, PATTERN) < rate
        ):
            accepted += 1
        return accepted
