"""Files of another engine's output: what is wrong with one is told, with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config.errors import UserError
from engine.evaluation.check.outputs import read_foreign


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no rows"),
        ("hello\n", "line 1: not JSON"),
        ("[1]\n", "not a JSON object"),
        ('{"prompt_ids": [1]}\n', "no 'output_ids'"),
        ('{"output_ids": [1]}\n', "neither 'prompt_ids' nor a text 'prompt'"),
        ('{"prompt": "a", "output_ids": "b"}\n', "list of token ids"),
        ('{"prompt_ids": [-1], "output_ids": []}\n', "list of token ids"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "f.jsonl").write_text(content)
    with pytest.raises(UserError, match=reason):
        read_foreign(tmp_path / "f.jsonl")


def test_a_trace_need_not_tell_how_long_the_rows_were_before(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text(
        '{"type":"header","schema":"batchspec/trace/3","method":"x",'
        '"prompts":[{"index":0,"ids":[1,2]}]}\n'
        '{"type":"round","round":1,"rows":[{"row":0,"committed":[5,6]}]}\n'
        '{"type":"round","round":2,"rows":[{"row":0,"committed":[7]}]}\n'
    )
    assert read_foreign(tmp_path / "f.jsonl").rows[0].output_ids == (5, 6, 7)
