"""The round: choose, draft, verify, accept, synchronise. Written once, for every method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.config.errors import NonFiniteLogits
from engine.models.lease import Lease
from engine.records.schema import RoundRecord
from engine.rounds.acceptance import Acceptance, Verdict
from engine.rounds.draft_model import Drafter, DraftTokens
from engine.rounds.draft_policy import DraftPolicy
from engine.rounds.layout import Layout
from engine.rounds.observer import AcceptStep, Costs, Observer
from engine.rounds.packed_logits import Logits
from engine.rounds.phase_timer import Meter
from engine.rounds.sampling import Sampler
from engine.rounds.schedule import Chosen, Schedule
from engine.rounds.sequence import Sequence
from engine.rounds.side import Stamps


@dataclass
class Loop:
    """One run of one method: its choice at each step.

    What is charged to the phases is decoding. What the observer does is charged to nothing.

    Attributes:
        lease: of the pair: nobody else runs its models during a round.
        round: rounds so far.
        elapsed: seconds of them.
    """

    layout: Layout
    schedule: Schedule
    policy: DraftPolicy
    drafter: Drafter
    accept: Acceptance
    sampler: Sampler
    observer: Observer
    lease: Lease = field(default_factory=Lease)
    round: int = 0
    elapsed: float = 0.0

    def __post_init__(self) -> None:
        models = [side.model for side in self.layout.sides]
        self.meter = Meter(weight.device for model in models for weight in model.hf.parameters())

    def rounds(self) -> Iterator[RoundRecord]:
        """Run to the end, a record a round. Closing the iterator stops between rounds."""
        while (record := self.step()) is not None:
            yield record

    def step(self) -> RoundRecord | None:
        """Run one round; None when every row has ended. Waits while another thread has the pair."""
        with self.lease, torch.inference_mode():
            return self._round()

    def _round(self) -> RoundRecord | None:
        layout, meter = self.layout, self.meter
        # choose: the rows of this round
        with meter.phase("schedule"):
            chosen = self.schedule.choose()
        if chosen is None:
            return None
        if chosen.admit:
            with meter.phase("prefill"):
                layout.admit(chosen.admit)
        rows = list(layout.rows if chosen.rows is None else chosen.rows)
        moving = "realign" if layout.realigns(rows) else "schedule"
        with meter.phase(moving):
            moved = layout.gather(rows)
        # draft: up to K_i tokens for each row
        with meter.phase("draft"):
            choice = self.policy.choose(len(rows))
            drafted = self.drafter.draft(layout, choice.draft_tokens, self.sampler)
        # verify: one forward of the target over all of them
        with meter.phase("verify"):
            logits = Logits(self._verify(drafted), [count + 1 for count in drafted.counts])
        # accept: a prefix of each row's draft tokens, and the bonus token
        fed_ids = Stamps(layout.sides)  # they cross to the host while the round is verified
        with meter.phase("accept"):
            verdicts = self.accept.judge(logits, drafted, rows, self.sampler)
        fed_ids.enter()
        self.round += 1
        step = AcceptStep(
            self.round, chosen, choice, rows, layout.length(), drafted, logits, verdicts
        )
        verdicts = self.observer.accepted(step)
        with meter.phase("accept"):
            committed = [self._commit(row, v) for row, v in zip(rows, verdicts, strict=True)]
        # synchronise: the rows grew by different amounts
        with meter.phase(moving):
            done = layout.synchronise()
        self.observer.synchronised(committed, done)
        with meter.phase("schedule"):
            freed = layout.compact()
        return self._end(chosen, rows, moving, moved + done.moved_bytes, freed)

    def _verify(self, drafted: DraftTokens) -> Tensor:
        """Feed [last committed, d1 … dK]; K + 1 logits of every row come back."""
        device = self.layout.target.model.device
        last = self.layout.committed(1, device)
        block = torch.cat([last, drafted.tokens.to(device)], dim=1)
        return self.layout.verify(block, [count + 1 for count in drafted.counts])

    def _commit(self, row: Sequence, verdict: Verdict) -> list[int]:
        row.rounds += 1
        row.waited = 0
        if not verdict.finite:
            row.fail(str(NonFiniteLogits([row.index], self.round, "target")))
            return []
        row.accepted += verdict.accepted
        row.drafted += len(verdict.draft_token_ids)
        kept = row.commit(verdict.block)
        accepted = min(verdict.accepted, len(kept))
        self.drafter.learn(self.layout, row, accepted, len(verdict.draft_token_ids))
        self.layout.target.valid[row.index] += len(kept)
        return kept

    def _end(
        self, chosen: Chosen, rows: list[Sequence], moving: str, moved: int, freed: int
    ) -> RoundRecord:
        """Take the time, and let those learn who want to."""
        queued = len(self.schedule.queue)
        ended = not any(row.running for row in rows)
        seconds = self.meter.take(last=ended and not queued and not chosen.pool)
        self.elapsed += seconds.total
        realigned = moved if moving == "realign" else 0
        costs = Costs(seconds, self.elapsed, realigned, moved - realigned + freed, queued)
        record = self.observer.record(costs)
        self.policy.observe(record)
        return record
