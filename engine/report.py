"""From a finished round to its record."""

from __future__ import annotations

from dataclasses import dataclass

from engine.accept import Verdict
from engine.layout.base import Layout, Settled
from engine.records import RowRound, Span
from engine.sequence import Sequence


@dataclass(frozen=True)
class Fed:
    """A row as it stood when the target read it: noted before the commit.

    Attributes:
        place: row of the batch tensor.
        before: committed tokens.
        positions: fed for [last committed, d1 … dK].
        spans: the row in memory.
        waited: rounds since it last took part.
        why: why the scheduler put it there.
    """

    place: int
    before: int
    positions: tuple[int, ...]
    spans: tuple[Span, ...]
    waited: int
    why: str


def note_fed(
    layout: Layout, rows: list[Sequence], verdicts: list[Verdict], why: dict[int, str]
) -> list[Fed]:
    """What the target read, row by row."""
    assert layout.target.last is not None
    positions = layout.target.last[0]
    return [
        Fed(
            place=layout.place(row),
            before=row.length,
            positions=tuple(positions[place, : len(verdict.proposals) + 1].tolist()),
            spans=layout.fed_spans(row, verdict.proposals),
            waited=row.waited,
            why=why.get(row.index, ""),
        )
        for place, (row, verdict) in enumerate(zip(rows, verdicts, strict=True))
    ]


def row_record(
    layout: Layout,
    row: Sequence,
    verdict: Verdict,
    fed: Fed,
    committed: list[int],
    settled: Settled,
) -> RowRound:
    """One row's part of a round record. Call when the layout has settled."""
    stays = row in layout.rows
    kept = (Span(kind="content", length=row.length, position=0, attended=True),)
    draft = layout.draft
    return RowRound(
        row=row.index,
        place=fed.place,
        proposals=verdict.proposals,
        accepted=verdict.accepted,
        bonus=verdict.bonus if len(committed) > verdict.accepted else None,
        committed=tuple(committed),
        before=fed.before,
        content=row.length,
        padding=layout.padding(row) if stays else 0,
        delta=settled.deltas.get(row.index, 0),
        kv_length=layout.target.valid[row.index] if stays else row.length - 1,
        draft_kv_length=draft.valid[row.index] if stays and draft else 0,
        positions=fed.positions,
        fed=fed.spans,
        kept=layout.kept_spans(row) if stays else kept,
        finish_reason=row.finish_reason,
        error=row.error,
        why=fed.why,
        waited=fed.waited,
        tests=verdict.tests,
        choice=verdict.choice,
        forced=verdict.forced,
    )
