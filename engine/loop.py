"""The round: draft → verify → accept → synchronise, written once for every method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.accept import Lossless, Verdict
from engine.draft import Drafter, Proposals
from engine.errors import NonFiniteLogits
from engine.invariants import CHECKED, Invariants
from engine.layout.base import Layout
from engine.meter import Meter
from engine.records import Phases, RoundRecord, RowRound, Span
from engine.sampling import Sampler
from engine.schedule import Chosen, Schedule
from engine.sequence import Sequence


@dataclass
class Loop:
    """One run of one method. `rounds()` is the whole algorithm.

    Attributes:
        draft_tokens: K, read at the beginning of each round, so it may be changed
            between rounds.
    """

    layout: Layout
    schedule: Schedule
    drafter: Drafter
    accept: Lossless
    sampler: Sampler
    draft_tokens: int
    lane: int = 0

    def __post_init__(self) -> None:
        self.meter = Meter(self.layout.target.model.device)
        self.invariants = Invariants()
        self.round = 0
        self.elapsed = 0.0

    def rounds(self) -> Iterator[RoundRecord]:
        """Run to the end, a record a round. Closing the iterator stops between rounds."""
        while (record := self.step()) is not None:
            yield record

    @torch.inference_mode()
    def step(self) -> RoundRecord | None:
        """One round; None when every row has ended."""
        layout, meter = self.layout, self.meter
        with meter.phase("schedule"):
            chosen = self.schedule.choose()
        if chosen is None:
            return None
        self.round += 1
        with meter.phase("prefill"):
            if chosen.admit:
                layout.admit(chosen.admit)
        with meter.phase("schedule"):
            staged = layout.choose(chosen.rows if chosen.rows is not None else layout.rows)
            rows = list(layout.rows)
            length_before = layout.length()
            counts = [self.drafter.limit(row, self.draft_tokens) for row in rows]
        with meter.phase("draft"):
            proposals = self.drafter.propose(layout, counts, self.sampler)
        with meter.phase("verify"):
            logits = self._verify(proposals)
        with meter.phase("accept"):
            verdicts = self.accept.judge(logits, proposals, rows, self.sampler)
            layout.target.stamp()
            found = self.invariants.before_settle(layout, rows, verdicts)
            fed = [layout.fed_spans(row, v.proposals) for row, v in zip(rows, verdicts, strict=True)]
            positions = layout.target.last[0].tolist() if layout.target.last else []
            places = {row.index: place for place, row in enumerate(rows)}
            befores = [row.length for row in rows]
            committed = [self._commit(row, v) for row, v in zip(rows, verdicts, strict=True)]
        with meter.phase("realign"):
            settled = layout.settle()
        with meter.phase("accept"):
            found += self.invariants.after_settle(layout, rows)
        ended = [row for row in rows if not row.running]
        entries = []
        for place, (row, verdict) in enumerate(zip(rows, verdicts, strict=True)):
            entries.append(
                RowRound(
                    row=row.index,
                    place=places[row.index],
                    proposals=verdict.proposals,
                    accepted=verdict.accepted,
                    bonus=verdict.bonus if len(committed[place]) > verdict.accepted else None,
                    committed=tuple(committed[place]),
                    before=befores[place],
                    positions=tuple(positions[place][: len(verdict.proposals) + 1]),
                    fed=fed[place],
                    finish_reason=row.finish_reason,
                    error=row.error,
                    why=chosen.why.get(row.index, ""),
                    waited=row.waited,
                    tests=verdict.tests,
                    **self._state(row, settled.deltas),
                )
            )
        with meter.phase("schedule"):
            layout.compact()
        return self._record(chosen, entries, ended, length_before, found, settled.moved_bytes)

    def _verify(self, proposals: Proposals) -> Tensor:
        """Feed [last committed, d1 … dK]; K + 1 logits of every row come back."""
        side = self.layout.target
        last = self.layout.committed(1, side.model.device)
        block = torch.cat([last, proposals.tokens.to(side.model.device)], dim=1)
        return self.layout.verify(block, [count + 1 for count in proposals.counts])

    def _commit(self, row: Sequence, verdict: Verdict) -> list[int]:
        row.rounds += 1
        row.waited = 0
        if not verdict.finite:
            row.fail(str(NonFiniteLogits([row.index], self.round, "target")))
            return []
        row.accepted += verdict.accepted
        row.drafted += len(verdict.proposals)
        self.drafter.learn(self.layout, row, verdict.accepted, len(verdict.proposals))
        kept = row.commit(verdict.block)
        self.layout.target.valid[row.index] += len(kept)
        return kept

    def _state(self, row: Sequence, deltas: dict[int, int]) -> dict[str, object]:
        """The fields of a record that describe the row after the round."""
        layout = self.layout
        if row not in layout.rows:
            kept = (Span(kind="content", length=row.length, position=0, attended=True),)
            return {"content": row.length, "kv_length": row.length - 1, "kept": kept}
        draft = layout.draft
        return {
            "content": row.length,
            "padding": layout.padding(row),
            "delta": deltas.get(row.index, 0),
            "kv_length": layout.target.valid[row.index],
            "draft_kv_length": draft.valid[row.index] if draft else 0,
            "kept": layout.kept_spans(row),
        }

    def _record(
        self,
        chosen: Chosen,
        entries: list[RowRound],
        ended: list[Sequence],
        length_before: int,
        found: list[tuple[str, int | None, str]],
        moved_bytes: int,
    ) -> RoundRecord:
        seconds: Phases = self.meter.take()
        self.elapsed += seconds.total
        return RoundRecord(
            round=self.round,
            lane=self.lane,
            rows=tuple(entries),
            length=self.layout.length() if self.layout.rows else 0,
            length_before=length_before,
            draft_tokens=self.draft_tokens,
            kind=chosen.kind,
            pool=chosen.pool,
            queued=len(self.schedule.queue),
            admitted=tuple(row.index for row in chosen.admit),
            left=tuple(row.index for row in ended),
            seconds=seconds,
            elapsed=self.elapsed,
            realign_bytes=moved_bytes,
            checked=CHECKED,
            violations=self.invariants.violations(self.round, found),
        )
