"""The deep audit: K/V that are not a row's own are found, and named by row and slot."""

from __future__ import annotations

import pytest
import torch

from engine.config.methods import CORRECT_METHODS
from engine.config.settings import Settings
from engine.microscope.kv_audit import Audit, mark_ghosts
from engine.records.row import Span
from engine.records.schema import RoundRecord
from engine.rounds.layout import Layout
from engine.rounds.sequence import Sequence
from engine.runs.run import Run
from tests.tiny import mixed_prompts, tiny_pair


def audited(method: str, fault: str = "") -> list[RoundRecord]:
    settings = Settings(
        method=method,
        fault=fault,
        batch_size=3,
        window=5,
        draft_tokens=3,
        max_new_tokens=14,
        audit=True,
    )
    run = Run(tiny_pair(), settings, mixed_prompts(6, seed=4))
    return [record for record in run.records() if isinstance(record, RoundRecord)]


@pytest.mark.parametrize("method", CORRECT_METHODS)
def test_no_correct_method_has_ghosts(method: str) -> None:
    records = audited(method)
    assert not [violation for record in records for violation in record.violations]
    assert not [s for r in records for row in r.rows for s in row.kept if s.kind == "ghost"]


def test_attention_to_padding_makes_ghosts_that_the_ledger_cannot_see() -> None:
    records = audited("eqspec", "padding-not-masked")
    named = [v for r in records for v in r.violations if v.kind == "ghosts"]
    assert named
    assert all(v.invariant == "I3" and v.row is not None for v in named)
    assert [s for r in records for row in r.rows for s in row.kept if s.kind == "ghost"]


def test_one_wrong_slot_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    true_ghosts = Audit.ghosts

    def spoil_slot_two(self: Audit, layout: Layout, row: Sequence) -> list[int]:
        cell = int(layout.content_cells(layout.target, row, 3)[2])
        layout.target.store.buffers[1][cell] += 0.5  # a value of layer 0
        return true_ghosts(self, layout, row)

    monkeypatch.setattr(Audit, "ghosts", spoil_slot_two)
    with torch.inference_mode():
        record = audited("slotspec")[0]
    assert {(v.kind, v.slots) for v in record.violations} == {("ghosts", (2,))}


def test_ghosts_are_cut_out_of_content() -> None:
    content = Span(kind="content", length=6, first=0, position=0, attended=True)
    spans = mark_ghosts((Span(kind="pad", length=2), content), [2, 3])
    assert [(s.kind, s.length, s.first, s.position) for s in spans] == [
        ("pad", 2, 0, None),
        ("content", 2, 0, 0),
        ("ghost", 2, 2, 2),
        ("content", 2, 4, 4),
    ]
