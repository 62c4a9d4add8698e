"""A draft whose context is shorter than the target's: it falls silent, and nothing breaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.config.methods import CORRECT_METHODS
from engine.config.settings import Settings
from engine.evaluation.oracle import Oracle
from engine.records.schema import RoundRecord, Summary
from engine.runs.run import Run
from tests.tiny import prompts_of, tiny_pair


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("method", CORRECT_METHODS)
def test_rows_beyond_the_drafts_context_go_on_without_draft_tokens(method: str, kind: str) -> None:
    pair = tiny_pair(kind)
    short = replace(pair, draft=tiny_pair(kind, context=32).draft)
    # the first row begins beyond the draft's 32 positions, the second grows past them
    lengths = (40, 24, 5)
    prompts = prompts_of([[3 + (7 * i + n) % 30 for i in range(n)] for n in lengths])
    settings = Settings(method=method, batch_size=3, draft_tokens=3, max_new_tokens=20)
    *records, summary = Run(short, settings, prompts).records()
    assert isinstance(summary, Summary)
    answers = Oracle(pair).answers(prompts, Settings(max_new_tokens=20))
    assert [r.output_ids for r in summary.rows] == [a.output_ids for a in answers]
    rounds = [record for record in records if isinstance(record, RoundRecord)]
    assert not [violation for record in rounds for violation in record.violations]
    drafted = {row.index: row.drafted for row in summary.rows}
    assert drafted[0] == 0
    if method != "autoregressive":
        assert drafted[2] > 0
