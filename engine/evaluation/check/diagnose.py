"""Why a row of another engine differs, as far as that can be tested.

In this order: rounding; tokens that are repeated or missing, with the oracle's own text
after that; the draft's rejected token, where the rounds are recorded; and the readings of
`engine.evaluation.check.hypotheses`, of which the one counts that gives most of the tokens that a
right reading does not give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from engine.config.settings import Settings
from engine.evaluation.check.hypotheses import plain, readings
from engine.evaluation.check.outputs import Foreign
from engine.evaluation.check.rescore import Mistake, Probe, Reading
from engine.records.divergence import Answer, Divergence, agreement, cut_at_eos
from engine.records.fold import RowFold
from engine.records.row import RowRound
from engine.records.schema import Prompt
from engine.records.violation import Violation

if TYPE_CHECKING:
    from engine.pairs.load import Pair

FOLLOWING = 4
"""Tokens that must be the oracle's again after a repetition or a gap (or all that are left,
where there are fewer, but two at least)."""

Finding = Literal[
    "numeric", "stopped", "past_end", "repeated", "missing", "draft_token", "invariant",
    "positions", "cache", "padding", "prompt", "unexplained",
]  # fmt: skip


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference of a row: an entry of `divergences` in `check --json`."""

    index: int
    position: int
    """Place among the row's new tokens, from 0."""
    expected: int | None
    """The oracle's token; null where the oracle had ended."""
    got: int | None
    """The other engine's token; null where its row had ended."""
    oracle_gap: float | None
    """Between the oracle's two best logits there."""
    rank: int | None = None
    """Which choice of the target the other engine's token is there: 1 is the best."""
    distance: float | None = None
    """How far its logit lies below the best one."""
    cause: Finding
    invariant: str | None = None
    round: int | None = None
    explained: int | None = None
    """Of the tokens from there on that a right reading does not give, how many the named
    mistake gives."""
    of: int | None = None
    """How many such tokens there are, among the next sixteen."""
    mistake: Mistake = "none"
    """Which wrong reading explains it (positions, cache, padding, prompt)."""
    numbers: dict[str, int] = {}
    """Of the mistake; or `count` of the tokens that stand twice or are missing, and `follow`:
    how many after them are the oracle's again; or how many readings were `tried`."""
    violation: Violation | None = None
    tolerance: float = 0.0
    finish_reason: str = ""
    error: str = ""


class Score(NamedTuple):
    """How well a wrong reading explains a row."""

    explained: int
    """Tokens that it gives and a right one does not."""
    of: int
    """Tokens that a right reading does not give."""
    spoiled: int
    """Tokens that a right reading gives and it does not."""

    @property
    def worth(self) -> int:
        return self.explained - self.spoiled

    @property
    def holds(self) -> bool:
        """Whether it may be called the cause: most of what is wrong comes of it."""
        return self.explained > 0 and self.worth > 0 and 2 * self.explained > self.of


class Explainer:
    """Finds the cause of each row's first difference."""

    def __init__(
        self,
        pair: Pair,
        settings: Settings,
        prompts: Sequence[Prompt],
        foreign: Foreign,
        tolerance: float,
    ) -> None:
        self._tokenizer = pair.tokenizer
        self._probe = Probe(pair.target, pair.lease)
        self._prompts = {prompt.index: prompt.ids for prompt in prompts}
        self._longest = max((len(prompt.ids) for prompt in prompts), default=0)
        self._tolerance = tolerance
        k = settings.draft_tokens
        self._draft_tokens = k if isinstance(k, int) else 5
        self._rounds: dict[int, list[RowRound]] = {}
        for record in foreign.rounds:
            for row in record.rows:
                self._rounds.setdefault(row.row, []).append(row)

    def cause(self, found: Divergence, answer: Answer, trail: RowFold) -> Cause:
        """The cause of one row's first difference."""
        cause = as_cause(found)
        if found.got is None or found.expected is None:
            return cause
        prompt, place = self._prompts[found.index], found.position
        output = list(cut_at_eos(trail.output, self._tokenizer.eos_ids))  # beyond it is padding
        if place >= len(output):
            output = trail.output
        right = plain(prompt, output, place)
        logits = self._probe.logits([right])[0]
        best, own = float(logits[0].max()), float(logits[0, found.got])
        rank = 1 + int((logits[0] > own).sum())
        cause = msgspec.structs.replace(cause, rank=rank, distance=best - own)
        if cause.cause == "invariant":
            return cause
        if best - own <= self._tolerance:
            return msgspec.structs.replace(cause, cause="numeric", tolerance=self._tolerance)
        moved = self._moved(output, answer.output_ids, place)
        if moved is not None:
            return msgspec.structs.replace(cause, cause=moved[0], numbers=moved[1])
        if self._is_rejected_draft_token(found):
            return msgspec.structs.replace(cause, cause="draft_token")
        return self._read(cause, right, logits.argmax(-1).tolist(), output)

    def _moved(
        self, output: Sequence[int], expected: Sequence[int], place: int
    ) -> tuple[Finding, dict[str, int]] | None:
        """Tokens that stand twice, or are missing, with the oracle's own after that."""
        for count in range(1, max(self._draft_tokens + 1, 8) + 1):
            again = output[place : place + count]
            if count <= place and list(again) == list(output[place - count : place]):
                follow = agreement(output[place + count :], expected[place:])
                if _enough(follow, len(output) - place - count, len(expected) - place):
                    return "repeated", {"count": count, "follow": follow}
            follow = agreement(output[place:], expected[place + count :])
            if _enough(follow, len(output) - place, len(expected) - place - count):
                return "missing", {"count": count, "follow": follow}
        return None

    def _is_rejected_draft_token(self, found: Divergence) -> bool:
        """Whether the token is a draft token that the round itself rejected."""
        done = 0
        for row in self._rounds.get(found.index, ()):
            at = found.position - done
            if 0 <= at < len(row.committed):
                rejected = row.accepted < len(row.draft_token_ids)
                return at == row.accepted and rejected and row.draft_token_ids[at] == found.got
            done += len(row.committed)
        return False

    def _read(self, cause: Cause, right: Reading, picks: list[int], output: list[int]) -> Cause:
        """The wrong reading that explains most."""
        wanted = output[cause.position : cause.position + right.places]
        tried = [
            reading
            for reading in readings(
                self._prompts[cause.index],
                output,
                cause.position,
                draft_tokens=self._draft_tokens,
                longest=self._longest,
                bos=self._tokenizer.bos_id,
                pad=self._tokenizer.pad_id,
                rounds=self._rounds.get(cause.index, ()),
            )
            if self._probe.fits(reading)
        ]
        best: tuple[Reading, Score] | None = None
        for reading, logits in zip(tried, self._probe.logits(tried), strict=True):
            score = _score(wanted, picks, logits.argmax(-1).tolist())
            if score.holds and (best is None or score.worth > best[1].worth):
                best = reading, score
        if best is None:
            return msgspec.structs.replace(
                cause,
                cause="unexplained",
                numbers={"tried": len(tried)},
            )
        reading, score = best
        return msgspec.structs.replace(
            cause,
            cause=reading.kind,
            mistake=reading.mistake,
            numbers=reading.numbers,
            explained=score.explained,
            of=score.of,
        )


def _score(wanted: Sequence[int], right: Sequence[int], picks: Sequence[int]) -> Score:
    """Compare a reading's picks with those of the right one; 0 explained if the first is not."""
    entries = list(zip(wanted, right, picks, strict=False))
    of = sum(token != plain_pick for token, plain_pick, _ in entries)
    if not entries or entries[0][2] != entries[0][0]:
        return Score(0, of, 0)
    explained = sum(plain_pick != token == pick for token, plain_pick, pick in entries)
    spoiled = sum(token == plain_pick != pick for token, plain_pick, pick in entries)
    return Score(explained, of, spoiled)


def _enough(follow: int, left: int, expected: int) -> bool:
    return follow >= max(2, min(FOLLOWING, left, expected))


def as_cause(found: Divergence) -> Cause:
    """What attribution says already, in the words of a check."""
    cause: Finding = "unexplained"
    if found.cause == "stopped":
        cause = "stopped"
    elif found.cause == "numeric":
        cause = "numeric"
    elif found.expected is None:
        cause = "past_end"
    elif found.invariant is not None:
        cause = "invariant"
    return Cause(
        index=found.index,
        position=found.position,
        expected=found.expected,
        got=found.got,
        oracle_gap=found.oracle_gap,
        cause=cause,
        violation=found.violation,
        tolerance=found.tolerance,
        finish_reason=found.finish_reason,
        error=found.error,
        invariant=found.invariant,
        round=found.round,
    )
