"""Prompts: every source, every way in which a file can be bad, and rows that cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.config.errors import UserError
from engine.text.prompts import PromptEntry, encode_prompts, read_prompts, shipped_prompts


class Letters:
    """One token a letter; `bos` and a chat format at will."""

    vocabulary = 200

    def __init__(self, bos: int | None = None, chat: bool = False) -> None:
        self.bos_id, self.has_chat = bos, chat

    def encode(self, text: str, *, chat: bool = False) -> list[int]:
        return [ord(letter) for letter in (f"<{text}>" if chat else text)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def write(tmp_path: Path, name: str, content: str | bytes) -> Path:
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


class TestReading:
    def test_typed_prompts_come_before_the_files(self, tmp_path: Path) -> None:
        file = write(tmp_path, "p.txt", "two\n")
        assert [entry.text for entry in read_prompts(["one"], file)] == ["one", "two"]

    def test_without_any_the_shipped_ones_are_used(self) -> None:
        assert read_prompts() == shipped_prompts()

    def test_limit_keeps_the_first(self) -> None:
        assert read_prompts(["a", "b", "c"], limit=2) == read_prompts(["a", "b"])

    def test_text_is_a_prompt_a_line_and_blank_lines_are_none(self, tmp_path: Path) -> None:
        file = write(tmp_path, "p.txt", "\ufeffone\r\n\n  \n two \u2028 still two\n")
        texts = [entry.text for entry in read_prompts(file=file)]
        assert texts == ["one", " two \u2028 still two"]

    def test_jsonl_takes_prompt_turns_and_ids(self, tmp_path: Path) -> None:
        file = write(
            tmp_path,
            "p.jsonl",
            '{"prompt": "a", "category": "writing", "id": 7}\n'
            '{"turns": ["b", "then"], "category": "qa"}\n'
            '{"prompt_ids": [3, 4]}\n'
            '{"prompt_ids": []}\n',
        )
        assert read_prompts(file=file) == (
            PromptEntry(text="a", category="writing"),
            PromptEntry(text="b", category="qa"),
            PromptEntry(ids=(3, 4)),
            PromptEntry(ids=()),
        )

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("{", "not JSON"),
            ("[1]", "not a JSON object"),
            ("{}", "no 'prompt', 'turns' or 'prompt_ids'"),
            ('{"prompt": 3}', "'prompt' must be a text"),
            ('{"turns": []}', "'turns' must be a list"),
            ('{"turns": "x"}', "'turns' must be a list"),
            ('{"prompt_ids": [1, -2]}', "'prompt_ids' must be a list of token ids"),
            ('{"prompt_ids": [true]}', "'prompt_ids' must be a list of token ids"),
            ('{"prompt_ids": "12"}', "'prompt_ids' must be a list of token ids"),
            ('{"prompt": "x", "category": 1}', "'category' must be a text"),
        ],
    )
    def test_a_bad_line_is_named_with_its_number(
        self, tmp_path: Path, line: str, reason: str
    ) -> None:
        file = write(tmp_path, "p.jsonl", '{"prompt": "good"}\n\n' + line + "\n")
        with pytest.raises(UserError, match="line 3") as caught:
            read_prompts(file=file)
        assert reason in str(caught.value)

    def test_what_is_not_utf8_is_named_with_its_line(self, tmp_path: Path) -> None:
        file = write(tmp_path, "p.txt", b"good\ncaf\xe9\n")
        with pytest.raises(UserError, match="line 2: not UTF-8"):
            read_prompts(file=file)

    @pytest.mark.parametrize("content", ["", "\n \n"])
    def test_an_empty_file_is_refused(self, tmp_path: Path, content: str) -> None:
        with pytest.raises(UserError, match="no prompts in it"):
            read_prompts(file=write(tmp_path, "p.jsonl", content))

    def test_a_missing_file_a_directory_and_an_unknown_kind_are_refused(
        self, tmp_path: Path
    ) -> None:
        with pytest.raises(UserError, match="no such prompt file"):
            read_prompts(file=tmp_path / "none.txt")
        with pytest.raises(UserError, match="no such prompt file"):
            read_prompts(file=tmp_path / "none")
        (tmp_path / "folder.txt").mkdir()
        with pytest.raises(UserError, match="cannot be read"):
            read_prompts(file=tmp_path / "folder.txt")
        with pytest.raises(UserError, match=r"use \.txt or \.jsonl"):
            read_prompts(file=write(tmp_path, "p.csv", "a"))


class TestEncoding:
    def test_rows_keep_order_text_and_category(self) -> None:
        entries = (PromptEntry(text="ab", category="qa"), PromptEntry(ids=(99,)))
        first, second = encode_prompts(entries, Letters(), None, 10)
        assert (first.index, first.ids, first.category) == (0, (97, 98), "qa")
        assert (second.index, second.ids, second.text) == (1, (99,), "c")

    def test_the_chat_format_is_used_where_there_is_one(self) -> None:
        entry = (PromptEntry(text="a"),)
        with_chat, without = Letters(chat=True), Letters()
        assert encode_prompts(entry, with_chat, None, 10)[0].ids == (60, 97, 62)
        assert encode_prompts(entry, with_chat, False, 10)[0].ids == (97,)
        assert encode_prompts(entry, without, None, 10)[0].ids == (97,)
        with pytest.raises(UserError, match="no chat template"):
            encode_prompts(entry, without, True, 10)

    def test_an_empty_prompt_starts_from_bos_or_is_that_rows_error(self) -> None:
        entries = (PromptEntry(text=""), PromptEntry(text="b"))
        assert encode_prompts(entries, Letters(bos=1), None, 10)[0].ids == (1,)
        first, second = encode_prompts(entries, Letters(), None, 10)
        assert first.error is not None
        assert "empty prompt" in first.error
        assert second.error is None

    def test_an_over_long_prompt_is_that_rows_error(self) -> None:
        entries = tuple(PromptEntry(text="x" * length) for length in (3, 4, 5))
        errors = [row.error for row in encode_prompts(entries, Letters(), None, 4)]
        assert errors[:2] == [None, None]
        assert errors[2] == "the prompt has 5 tokens; the model's context holds 4"

    def test_an_id_outside_the_vocabulary_is_that_rows_error(self) -> None:
        row = encode_prompts((PromptEntry(ids=(1, 200)),), Letters(), None, 0)[0]
        assert row.error == "token id 200 is outside the vocabulary (0 … 199)"


class TestShippedSet:
    def test_it_has_four_prompts_in_each_of_eight_categories(self) -> None:
        entries = shipped_prompts()
        categories = [entry.category for entry in entries]
        assert len(set(categories)) == 8
        assert all(categories.count(category) == 4 for category in categories)
        assert len({entry.text for entry in entries}) == 32

    def test_neighbours_differ_in_category(self) -> None:
        assert len({entry.category for entry in shipped_prompts()[:8]}) == 8

    @pytest.mark.real
    def test_it_ranges_from_a_handful_to_some_four_hundred_tokens(self, smollm2_dir: Path) -> None:
        import tokenizers

        backend = tokenizers.Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
        lengths = [len(backend.encode(entry.text).ids) for entry in shipped_prompts()]
        assert min(lengths) == 5
        assert 380 <= max(lengths) <= 420
