"""Every architecture on the allow-list, every correct method: the model's own solo decoding."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from engine.config.errors import UserError
from engine.config.methods import CORRECT_METHODS
from engine.microscope.invariants import mask_faults
from engine.models.architectures import ARCHITECTURES, check_architecture, context_of
from engine.models.windows import mark_hidden, newest_attended, newest_columns
from engine.records.row import RowRound, Span
from tests.families import VARIANTS, WINDOW, alone, pair_of
from tests.tiny import finished, prompts_of
from tui.view.batch.cells import Cell, Kind, fed, window
from tui.view.batch.paint_tensor import cell_text
from tui.view.sentences import violation_words
from tui.view.state.cursor import Phase
from tui.view.state.frame import CellMode

PROMPTS = prompts_of([(5, 6, 7, 8, 9, 10, 11, 12, 13), (4, 3), (20, 21, 22, 23, 24)])
TOKENS = WINDOW + 5
"""By then the window of every row has left the prompt behind."""

SETTINGS = {"batch_size": 3, "draft_tokens": 3, "max_new_tokens": TOKENS}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(
    ("method", "strict"), [*((name, False) for name in CORRECT_METHODS), ("slotspec", True)]
)
def test_a_batch_writes_what_the_model_writes_alone(name: str, method: str, strict: bool) -> None:
    done = finished(pair_of(name), PROMPTS, method=method, strict=strict, **SETTINGS)
    assert done.outputs == [alone(name, prompt.ids, TOKENS) for prompt in PROMPTS]
    assert done.violations == []
    if method in ("eqspec", "exspec", "slotspec"):
        counts = {row.accepted for record in done.rounds for row in record.rows}
        assert len(counts) > 1, "the rows never grew apart"


def test_every_architecture_of_the_list_is_in_the_matrix() -> None:
    assert {kind for kind, _ in VARIANTS.values()} == set(ARCHITECTURES)


# ---- windows ----------------------------------------------------------------------------


def test_a_window_counts_what_is_attended_to_and_not_columns() -> None:
    mask = torch.tensor([[0, 0, 1, 1, 1, 0], [1, 1, 0, 0, 1, 1]], dtype=torch.bool)[:, None, None]
    assert newest_attended(mask, 2)[:, 0, 0].int().tolist() == [
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ]
    assert newest_columns(mask, 3, 5)[:, 0, 0].int().tolist() == [
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, ""),
        ((0, 0, 0), "query 0 misses 1 of its own"),
        ((1, 1, 1), "query 1 sees 1 cell that is not its own, through a window of 3"),
        ((1, 0, 2), "query 0 misses 1 of its own, through a window of 3"),
    ],
)
def test_i4_looks_through_the_window_too(change: Any, message: str) -> None:
    full = np.tril(np.ones((6, 6), bool))[4:]
    near = full & (np.arange(6) > np.array([[4], [5]]) - 3)
    masks = np.stack([full, near])
    if change is not None:
        masks[change] = ~masks[change]
    row: Any = SimpleNamespace(index=0)
    found = mask_faults(row, masks, np.arange(6), 2, 3)
    assert [violation_words(one) for one in found] == ([message] if message else [])


@pytest.mark.parametrize("everywhere", [True, False])
def test_spans_tell_what_lies_beyond_the_window(everywhere: bool) -> None:
    spans = (
        Span(kind="pad", length=2),
        Span(kind="content", length=4, first=0, position=0, attended=True),
        Span(kind="stale", length=2, tokens=(7, 8), position=4, attended=True),
    )
    hidden = np.arange(8) < 5
    assert mark_hidden(spans, hidden, everywhere) == (
        Span(kind="pad", length=2),
        Span(kind="content", length=3, position=0, attended=not everywhere, beyond=True),
        Span(kind="content", length=1, first=3, position=3, attended=True),
        Span(kind="stale", length=2, tokens=(7, 8), position=4, attended=True),
    )


@pytest.mark.parametrize("name", ["mistral", "gemma3_text"])
@pytest.mark.parametrize("method", ["eqspec", "exspec", "slotspec"])
def test_records_show_what_the_window_hides(name: str, method: str) -> None:
    done = finished(pair_of(name), PROMPTS, method=method, **SETTINGS)
    rows = [row for record in done.rounds for row in record.rows]
    assert any(row.before > WINDOW for row in rows)
    for row in rows:
        # the newest committed token is the first query of the block; it is in its window
        assert _beyond(row.fed) == max(0, row.before - WINDOW)
        if row.finish_reason is None:
            assert _beyond(row.kept) == max(0, row.content - WINDOW)
        assert _length(row) == row.before
        for span in row.fed:
            assert span.attended == (span.kind != "pad" and not (span.beyond and name == "mistral"))


def test_the_screen_shows_what_only_some_layers_attend_to() -> None:
    done = finished(pair_of("gemma3_text"), PROMPTS, method="eqspec", **SETTINGS)
    row = max((row for record in done.rounds for row in record.rows), key=lambda row: row.before)
    shown = fed(row, len(PROMPTS[row.row].ids), Phase.VERIFY)
    beyond = row.before - WINDOW
    assert sum(segment.length for segment in shown if segment.beyond) == beyond > 0
    marks = [_mark(cell) for cell in window(shown, 0, shown[-1].end) if cell.kind is not Kind.PAD]
    assert "".join(marks) == "◐" * beyond + "●" * (len(marks) - beyond)


def _mark(cell: Cell) -> str:
    nothing: Any = None
    return cell_text(nothing, nothing, cell, CellMode.MASK)[0].strip()


def _beyond(spans: tuple[Span, ...]) -> int:
    assert all(span.kind == "content" for span in spans if span.beyond)
    return sum(span.length for span in spans if span.beyond)


def _length(row: RowRound) -> int:
    return sum(span.length for span in row.fed if span.kind == "content")


def test_the_baselines_count_columns_through_a_window_as_the_library_does() -> None:
    done = finished(pair_of("mistral"), PROMPTS, method="bsp", **SETTINGS)
    assert any(
        broken.invariant == "I4" and broken.numbers["window"] > 0 for _, broken in done.violations
    )


# ---- refusals ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "config", "reason"),
    [
        ("t5", {}, r"t5 has an encoder; choose a model that only decodes"),
        ("bart", {}, r"bart has an encoder"),
        ("qwen3_next", {}, r"its state \(linear_attention\) cannot be rolled back"),
        ("lfm2", {"layer_types": ["conv"] * 32}, r"its state \(conv\) cannot be rolled back"),
        ("bloom", {}, r"a bias on the attention \(ALiBi\) that it makes by itself"),
        ("mpt", {}, r"a bias on the attention \(ALiBi\)"),
        ("falcon", {"alibi": True}, r"a bias on the attention \(ALiBi\)"),
        ("falcon", {}, r"the architecture falcon is not supported; choose one of cohere, "),
        ("gpt_oss", {}, r"gpt_oss attends to sinks"),
        ("llama4_text", {}, r"llama4_text attends in chunks"),
        ("gptj", {}, r"the architecture gptj is not supported"),
        ("gemma3_text", {"use_bidirectional_attention": True}, r"attends to what follows"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    kind: str, config: dict[str, Any], reason: str
) -> None:
    model = SimpleNamespace(config=AutoConfig.for_model(kind, **config))
    with pytest.raises(UserError, match=f"^my model: .*{reason}") as refused:
        check_architecture(model, "my model")
    assert "\n" not in str(refused.value)


def test_long_rope_ends_a_row_where_its_first_table_ends() -> None:
    scaling = {
        "rope_type": "longrope",
        "short_factor": [1.0] * 48,
        "long_factor": [2.0] * 48,
        "original_max_position_embeddings": 4096,
    }
    config = AutoConfig.for_model("phi3", max_position_embeddings=131072, rope_parameters=scaling)
    assert context_of(config) == 4096
    assert context_of(AutoConfig.for_model("phi3", max_position_embeddings=131072)) == 131072
