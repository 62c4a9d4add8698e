"""The round: draft → verify → accept → synchronise, written once for every method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from msgspec.structs import replace

from engine.config.errors import NonFiniteLogits
from engine.drafting.auto_k.adaptive import Choice, DraftPolicy
from engine.microscope.inspect import Inspection
from engine.microscope.invariants import Found, Invariants, checked
from engine.microscope.kv_audit import Audit, audit, mark_ghosts
from engine.microscope.round_record import note_fed, row_record
from engine.models.lease import Lease
from engine.records.schema import RoundRecord, RowRound
from engine.rounds.acceptance import Lossless, Verdict
from engine.rounds.draft_model import Drafter, DraftTokens
from engine.rounds.layout import Layout, Stamps
from engine.rounds.packed_logits import Logits
from engine.rounds.phase_timer import Meter
from engine.rounds.sampling import Sampler
from engine.rounds.schedule import Chosen, Schedule
from engine.rounds.sequence import Sequence


@dataclass
class Loop:
    """One run of one method: its choice at every seam.

    What is charged to the phases is decoding. Checking the invariants and writing the
    record are the microscope's own work, and are charged to nothing.
    """

    layout: Layout
    schedule: Schedule
    drafter: Drafter
    accept: Lossless
    sampler: Sampler
    draft_tokens: DraftPolicy
    auditor: Audit | None = None
    lane: int = 0
    inspection: Inspection | None = None
    lease: Lease = field(default_factory=Lease)
    """Of the pair: nobody else runs its models during a round."""

    def __post_init__(self) -> None:
        models = [side.model for side in self.layout.sides]
        self.meter = Meter(weight.device for model in models for weight in model.hf.parameters())
        self.invariants = Invariants()
        self.round = 0
        self.elapsed = 0.0

    def rounds(self) -> Iterator[RoundRecord]:
        """Run to the end, a record a round. Closing the iterator stops between rounds."""
        while (record := self.step()) is not None:
            yield record

    def step(self) -> RoundRecord | None:
        """One round; None when every row has ended. Waits while another thread has the pair."""
        with self.lease, torch.inference_mode():
            return self._round()

    def _round(self) -> RoundRecord | None:
        layout, meter = self.layout, self.meter
        with meter.phase("schedule"):
            chosen = self.schedule.choose()
        if chosen is None:
            return None
        self.round += 1
        if chosen.admit:
            with meter.phase("prefill"):
                layout.admit(chosen.admit)

        # rows of one length are stacked as they are; others have to be padded first
        gather = "realign" if chosen.kind == "fallback" else "schedule"
        with meter.phase(gather):
            staged = layout.choose(layout.rows if chosen.rows is None else chosen.rows)
        rows = list(layout.rows)
        length_before = layout.length()
        with meter.phase("draft"):
            k = self.draft_tokens.choose(rows, refilled=self.schedule.refills(rows))
            counts = [self._limit(row, k) for row in rows]
            drafted = self.drafter.draft(layout, counts, self.sampler)
        with meter.phase("verify"):
            logits = self._verify(drafted)
        fed_ids = Stamps(layout.sides)  # on their way while the round is judged
        with meter.phase("accept"):
            verdicts = self.accept.judge(logits, drafted, rows, self.sampler)

        if self.inspection is not None:
            verdicts = self.inspection.look(logits, drafted, rows, verdicts)
        fed_ids.enter()
        found = self.invariants.before_settle(layout, rows, verdicts)
        fed = note_fed(layout, rows, verdicts, chosen.why)

        with meter.phase("accept"):
            committed = [self._commit(row, v) for row, v in zip(rows, verdicts, strict=True)]
        # nothing is realigned where rows are stacked as they are, or own their slots
        aligned = chosen.kind in ("grouped", "slots")
        with meter.phase("schedule" if aligned else "realign"):
            settled = layout.settle()

        found += self.invariants.after_settle(layout, rows)
        entries = [
            row_record(layout, row, verdict, before, kept, settled)
            for row, verdict, before, kept in zip(rows, verdicts, fed, committed, strict=True)
        ]
        for at in drafted.texts:
            entries[at] = replace(entries[at], by_text=True)
        if self.auditor is not None:
            faults, ghosts = audit(self.auditor, layout, rows)
            found = faults + found  # the first message of a row is the one that is shown
            entries = [
                replace(entry, kept=mark_ghosts(entry.kept, ghosts.get(entry.row, [])))
                for entry in entries
            ]
        with meter.phase("schedule"):
            freed = layout.compact()
        record = self._record(chosen, k, entries, length_before, found)
        moved = staged + settled.moved_bytes
        if aligned:
            return self._finish(record, staged_bytes=moved + freed)
        return self._finish(record, realign_bytes=moved, staged_bytes=freed)

    def _limit(self, row: Sequence, k: Choice) -> int:
        """K_i. What is given by hand is drafted whatever it is worth."""
        wanted = k.rows is None or row.index in k.rows or self.sampler.forced(row) > 0
        return self.drafter.limit(row, k.draft_tokens) if wanted else 0

    def _verify(self, drafted: DraftTokens) -> Logits:
        """Feed [last committed, d1 … dK]; K + 1 logits of every row come back."""
        device = self.layout.target.model.device
        last = self.layout.committed(1, device)
        block = torch.cat([last, drafted.tokens.to(device)], dim=1)
        counts = [count + 1 for count in drafted.counts]
        return Logits(self.layout.verify(block, counts), counts)

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

    def _record(
        self,
        chosen: Chosen,
        k: Choice,
        entries: list[RowRound],
        length_before: int,
        found: Found,
    ) -> RoundRecord:
        queued = len(self.schedule.queue)
        ended = all(entry.finish_reason for entry in entries)
        seconds = self.meter.take(last=ended and not queued and not chosen.pool)
        self.elapsed += seconds.total
        return RoundRecord(
            round=self.round,
            lane=self.lane,
            rows=tuple(entries),
            length=self.layout.length() if self.layout.rows else 0,
            length_before=length_before,
            draft_tokens=k.draft_tokens,
            draft_reason=k.reason,
            kind=chosen.kind,
            pool=chosen.pool,
            queued=queued,
            admitted=tuple(row.index for row in chosen.admit),
            left=tuple(row.row for row in entries if row.finish_reason is not None),
            seconds=seconds,
            elapsed=self.elapsed,
            checked=checked(self.layout, self.accept),
            violations=self.invariants.violations(self.round, found),
        )

    def _finish(self, record: RoundRecord, **moved: int) -> RoundRecord:
        record = replace(record, **moved)
        self.schedule.observe(record)
        self.draft_tokens.observe(record)
        return record
