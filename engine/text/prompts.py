"""Prompts: where they come from, and how they become token ids.

Reading (`read_prompts`) needs no model and no torch, so that a bad file is
reported before anything is loaded. Encoding (`encode_prompts`) comes after
loading; a prompt that cannot run carries its own error, and the others run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Protocol

import msgspec

from engine.config.errors import UserError
from engine.records.schema import Prompt

SUFFIXES = (".txt", ".jsonl")


class PromptEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt as the user gave it: text, or token ids that bypass the tokenizer."""

    text: str = ""
    ids: tuple[int, ...] | None = None
    category: str = ""


class Encoder(Protocol):
    """What encoding needs of a tokenizer (`engine.text.tokenizer.Tokenizer` has it)."""

    @property
    def has_chat(self) -> bool: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def bos_id(self) -> int | None: ...
    def encode(self, text: str, *, chat: bool = False) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...


def read_prompts(
    texts: Sequence[str] = (), file: Path | None = None, limit: int | None = None
) -> tuple[PromptEntry, ...]:
    """The prompts of the command line: typed ones, then the file's; else the shipped set.

    Raises:
        UserError: a file that is missing, empty, not UTF-8, of an unknown kind, or has a
            line that cannot be used (the message names the line and the reason).
    """
    entries = [PromptEntry(text=text) for text in texts]
    if file is not None:
        entries.extend(_read_file(file))
    if not entries:
        entries.extend(shipped_prompts())
    return tuple(entries if limit is None else entries[:limit])


def shipped_prompts() -> tuple[PromptEntry, ...]:
    """The 32 prompts that come with the program, 4 in each of 8 categories."""
    data = resources.files("engine.text").joinpath("prompts.jsonl").read_bytes()
    return tuple(_entries("prompts.jsonl", ".jsonl", data))


def encode_prompts(
    entries: Sequence[PromptEntry],
    tokenizer: Encoder,
    chat: bool | None,
    context_limit: int,
) -> tuple[Prompt, ...]:
    """Token ids for every entry, in order; `index` counts from 0.

    Args:
        chat: apply the chat template; None: where the tokenizer has one.
        context_limit: most tokens that target and draft can hold; 0 for no limit.

    A row that cannot run (no token to start from, too long, an id outside the
    vocabulary) has its `error` set and keeps its place.

    Raises:
        UserError: `chat` is asked for and the tokenizer has no template.
    """
    if chat and not tokenizer.has_chat:
        raise UserError("--chat: this tokenizer has no chat template; use --no-chat")
    use_chat = tokenizer.has_chat if chat is None else chat
    return tuple(
        _encode(index, entry, tokenizer, use_chat, context_limit)
        for index, entry in enumerate(entries)
    )


def _encode(
    index: int, entry: PromptEntry, tokenizer: Encoder, chat: bool, context_limit: int
) -> Prompt:
    if entry.ids is None:
        ids, text = tuple(tokenizer.encode(entry.text, chat=chat)), entry.text
    else:
        ids = entry.ids
        text = entry.text or tokenizer.decode(
            [token for token in ids if token < tokenizer.vocabulary]
        )
    error = None
    if not ids and tokenizer.bos_id is not None:
        ids = (tokenizer.bos_id,)
    if not ids:
        error = "empty prompt, and the model has no begin-of-sequence token to start from"
    elif context_limit and len(ids) > context_limit:
        error = f"the prompt has {len(ids)} tokens; the model's context holds {context_limit}"
    elif max(ids) >= tokenizer.vocabulary:
        error = f"token id {max(ids)} is outside the vocabulary (0 … {tokenizer.vocabulary - 1})"
    return Prompt(index=index, ids=ids, text=text, category=entry.category, error=error)


def _read_file(file: Path) -> list[PromptEntry]:
    if file.exists() and file.suffix.lower() not in SUFFIXES:
        raise UserError(f"{file}: unknown kind of prompt file; use .txt or .jsonl")
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{file}: no such prompt file") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    entries = list(_entries(str(file), file.suffix.lower(), data))
    if not entries:
        raise UserError(f"{file}: no prompts in it; put one on each line")
    return entries


def _entries(name: str, suffix: str, data: bytes) -> Iterator[PromptEntry]:
    """One entry per line that is not blank."""
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}, line {number}: not UTF-8 (byte {error.start + 1}); save the file as UTF-8"
            ) from error
        if not line.strip():
            continue
        if suffix == ".txt":
            yield PromptEntry(text=line)
            continue
        try:
            yield _from_json(line)
        except ValueError as error:
            raise UserError(f"{name}, line {number}: {error}") from error


def _from_json(line: str) -> PromptEntry:
    """Raises ValueError with the reason, in words for the user."""
    try:
        row = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError('not a JSON object; write {"prompt": "…"}')
    category = row.get("category", "")
    if not isinstance(category, str):
        raise ValueError("'category' must be a text")
    if "prompt_ids" in row:
        ids = row["prompt_ids"]
        if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
            raise ValueError("'prompt_ids' must be a list of token ids, whole numbers from 0")
        text = row.get("prompt", "")
        if not isinstance(text, str):
            raise ValueError("'prompt' must be a text")
        return PromptEntry(text=text, ids=tuple(ids), category=category)
    if "prompt" in row:
        if not isinstance(row["prompt"], str):
            raise ValueError("'prompt' must be a text")
        return PromptEntry(text=row["prompt"], category=category)
    if "turns" in row:
        turns = row["turns"]
        if not isinstance(turns, list) or not turns or not isinstance(turns[0], str):
            raise ValueError("'turns' must be a list that begins with a text")
        return PromptEntry(text=turns[0], category=category)
    raise ValueError("no 'prompt', 'turns' or 'prompt_ids' in it")
