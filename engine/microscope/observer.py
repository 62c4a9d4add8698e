"""The microscope: checks the invariants after every round, and makes its record."""

from __future__ import annotations

from msgspec.structs import replace

from engine.microscope.inspect import Inspection
from engine.microscope.invariants import Found, Invariants, checked
from engine.microscope.kv_audit import Audit, audit, mark_ghosts
from engine.microscope.round_record import RowAsRead, row_record, rows_as_read
from engine.records.row import RowRound
from engine.records.schema import RoundRecord
from engine.rounds.acceptance import Acceptance, Verdict
from engine.rounds.layout import Layout, Synchronised
from engine.rounds.observer import AcceptStep, Costs


class Microscope:
    """Looks on at the rounds of one run.

    Args:
        layout: of the run.
        accept: of the run.
        lane: number of the run in a comparison.
        inspection: adds to each verdict how it came about, where asked for.
        auditor: compares K/V with those of each row alone, where asked for.
    """

    def __init__(
        self,
        layout: Layout,
        accept: Acceptance,
        *,
        lane: int = 0,
        inspection: Inspection | None = None,
        auditor: Audit | None = None,
    ) -> None:
        self._layout = layout
        self._accept = accept
        self._lane = lane
        self._inspection = inspection
        self._auditor = auditor
        self._invariants = Invariants()
        self._step: AcceptStep
        self._verdicts: list[Verdict]
        self._read: list[RowAsRead]
        self._found: Found
        self._entries: list[RowRound]

    def accepted(self, step: AcceptStep) -> list[Verdict]:
        rows, verdicts = step.rows, step.verdicts
        if self._inspection is not None:
            verdicts = self._inspection.look(step.logits, step.drafted, rows, verdicts)
        self._step, self._verdicts = step, verdicts
        self._found = self._invariants.before_commit(self._layout, rows, verdicts)
        self._read = rows_as_read(self._layout, rows, verdicts)
        return verdicts

    def synchronised(self, committed: list[list[int]], done: Synchronised) -> None:
        rows, by_text = self._step.rows, self._step.drafted.texts
        self._found += self._invariants.after_synchronise(self._layout, rows)
        self._entries = [
            replace(
                row_record(self._layout, row, verdict, read, kept, done), by_text=place in by_text
            )
            for place, (row, verdict, read, kept) in enumerate(
                zip(rows, self._verdicts, self._read, committed, strict=True)
            )
        ]
        if self._auditor is not None:
            faults, ghosts = audit(self._auditor, self._layout, rows)
            self._found = faults + self._found  # of each invariant a row shows the first
            self._entries = [
                replace(entry, kept=mark_ghosts(entry.kept, ghosts.get(entry.row, [])))
                for entry in self._entries
            ]

    def record(self, costs: Costs) -> RoundRecord:
        step, layout, entries = self._step, self._layout, self._entries
        return RoundRecord(
            round=step.number,
            lane=self._lane,
            rows=tuple(entries),
            length=layout.length() if layout.rows else 0,
            length_before=step.length,
            draft_tokens=step.choice.draft_tokens,
            draft_choice=step.choice.why,
            kind=step.chosen.kind,
            pool=step.chosen.pool,
            starving=step.chosen.starving,
            largest_group=step.chosen.largest_group,
            queued=costs.queued,
            admitted=tuple(row.index for row in step.chosen.admit),
            left=tuple(row.row for row in entries if row.finish_reason is not None),
            seconds=costs.seconds,
            elapsed=costs.elapsed,
            realign_bytes=costs.realign_bytes,
            staged_bytes=costs.staged_bytes,
            checked=checked(layout, self._accept),
            violations=self._invariants.violations(step.number, self._found),
        )
