"""Text to token ids and back, for one tokenizer shared by target and draft.

The tokens' bytes are the ground: `piece` shows one token, `decode` joins the bytes
of many, and `TextStream` decodes them as they come. Byte-level BPE (GPT-2 kind) and
SentencePiece vocabularies (`▁` for a space, `<0xF0>` for a byte) are recognised by
the tokenizer's own decoder. Text is model output: it may hold control characters or
markup, and whoever shows it must make it safe.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from engine.config.errors import UserError
from engine.text.chat import Template, own_template

_SPACE = "▁"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """A tokenizer as the engine and the screen need it.

    Attributes:
        name: where it came from, for people.
        hf: the transformers tokenizer; None where a model comes without one.
        vocabulary: number of ids, added tokens included (a model's head may be padded
            beyond it).
        eos_ids: every id that ends a row.
        pad_id: an id to fill padding with; often an eos id, and never used to tell what
            padding is.
        bos_id: the id that an empty prompt starts from, where there is one.
    """

    def __init__(
        self,
        hf: Any | None,
        *,
        name: str,
        eos_ids: tuple[int, ...],
        pad_id: int | None = None,
        bos_id: int | None = None,
        vocabulary: int | None = None,
        template: Template | None = None,
    ) -> None:
        """`hf` is a transformers tokenizer; None where a model comes without one, so
        that only token ids can be given and shown."""
        self.name = name
        self.eos_ids = eos_ids
        self.bos_id = bos_id
        self.pad_id = pad_id if pad_id is not None else (eos_ids[0] if eos_ids else 0)
        self.hf = hf
        self.vocabulary = vocabulary or (len(hf) if hf is not None else 0)
        self._template = own_template(hf) if template is None else template
        self._special: frozenset[int] = frozenset(
            hf.all_special_ids if hf is not None else ()
        ) | frozenset(
            token
            for token, added in (hf.added_tokens_decoder.items() if hf is not None else ())
            if added.special
        )
        self._added: dict[int, str] = (
            {token: str(added.content) for token, added in hf.added_tokens_decoder.items()}
            if hf is not None
            else {}
        )
        kinds = _decoder_kinds(hf)
        self._byte_level = "ByteLevel" in kinds
        self._strips_first_space = not self._byte_level and bool({"Strip", "Metaspace"} & kinds)
        self._bytes: dict[int, bytes] = {}
        self._map: dict[str, int] | None = None

    @property
    def has_chat(self) -> bool:
        """Whether there is a chat template."""
        return self._template is not None

    def encode(self, text: str, *, chat: bool = False) -> list[int]:
        """Token ids of a text, or of the chat prompt that carries it as the user's message.

        Raises:
            UserError: `chat` without a template, or a model without a tokenizer.
        """
        if self.hf is None:
            raise UserError(
                f"{self.name} has no tokenizer: give token ids ('prompt_ids' in a .jsonl file)"
            )
        if not chat:
            return [int(token) for token in self.hf.encode(text, add_special_tokens=True)]
        if self._template is None:
            raise UserError("this tokenizer has no chat template; use --no-chat")
        return self._template(text)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token adds to the text (special tokens: their name)."""
        known = self._bytes.get(token)
        if known is None:
            known = self._bytes[token] = self._look_up(token)
        return known

    def piece(self, token: int) -> str:
        """Display text of one token. Bytes that are no valid UTF-8 on their own show as
        `⟨0xF0⟩`, an id outside the vocabulary as `⟨151999⟩`."""
        return self.token_bytes(token).decode("utf-8", errors="batchspec-show")

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a row's tokens, special ones left out; broken UTF-8 as U+FFFD."""
        stream = self.stream()
        return stream.feed(ids) + stream.flush()

    def stream(self) -> TextStream:
        """A decoder for one row's tokens as they come."""
        return TextStream(self)

    def is_special(self, token: int) -> bool:
        """Whether a token is markup of the model's format and no text."""
        return token in self._special

    def token_map(self) -> dict[str, int]:
        """Every token's own spelling and id (empty where there is no tokenizer)."""
        if self._map is None:
            self._map = dict(self.hf.get_vocab()) if self.hf is not None else {}
        return self._map

    def _look_up(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        spelled = self.hf.convert_ids_to_tokens(token) if self.hf is not None else None
        if spelled is None:
            return f"⟨{token}⟩".encode()
        if self._byte_level:
            table = _byte_of()
            if all(char in table for char in spelled):
                return bytes(table[char] for char in spelled)
            return str(spelled).encode()
        byte = _BYTE.fullmatch(spelled)
        if byte:
            return bytes([int(byte[1], 16)])
        return str(spelled).replace(_SPACE, " ").encode()


class TextStream:
    """Token ids in, newly stable text out: each token is decoded once.

    Bytes of a character that is not complete yet are held back until it is, or until
    `flush`. The text of all `feed` calls and one `flush` is `Tokenizer.decode`.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at_start = tokenizer._strips_first_space

    def feed(self, ids: Sequence[int]) -> str:
        """The text that these tokens add."""
        tokenizer = self._tokenizer
        added = b"".join(
            tokenizer.token_bytes(token) for token in ids if not tokenizer.is_special(token)
        )
        if self._at_start and added:
            added = added.removeprefix(b" ")
            self._at_start = False
        return self._decoder.decode(added)

    def flush(self) -> str:
        """What was held back, broken bytes as U+FFFD; the stream then starts anew."""
        rest = self._decoder.decode(b"", final=True)
        self._at_start = self._tokenizer._strips_first_space
        return rest


def first_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    """The first token that both know, and to which they give different ids, in words; None:
    there is none, and the one can draft for the other."""
    ours, theirs = target.token_map(), draft.token_map()
    differing = [
        (token, spelled) for spelled, token in ours.items() if theirs.get(spelled, token) != token
    ]
    if not differing:
        return None
    token, spelled = min(differing)
    return f"token {spelled!r} is {token} for the target and {theirs[spelled]} for the draft"


def known_to_one(target: Tokenizer, draft: Tokenizer) -> list[int]:
    """The ids that mean a token to only one of the two, or a different token to each.

    Such a token must not be drafted: to the target it would be another one, or none. An
    id that means nothing to either (a model's head may be padded) is not among them.
    """
    ours, theirs = target.token_map(), draft.token_map()
    if not ours or not theirs:
        return []
    return sorted({token for _, token in ours.items() ^ theirs.items()}) if ours != theirs else []


def _decoder_kinds(hf: Any | None) -> set[str]:
    """The type names of the tokenizer's decoder, e.g. {"ByteLevel"} or {"Replace", "Strip"}."""
    backend = getattr(hf, "backend_tokenizer", None)
    if backend is None or backend.decoder is None:
        return set()
    import json

    described = json.loads(backend.decoder.__getstate__())
    return {part["type"] for part in [described, *described.get("decoders", [])]}


@lru_cache(maxsize=1)
def byte_alphabet() -> tuple[str, ...]:
    """The character that stands for each byte in a byte-level vocabulary: printable
    Latin-1 for itself, the other 68 bytes as the characters from U+0100 on."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in plain else next(others)) for byte in range(256))


@lru_cache(maxsize=1)
def _byte_of() -> dict[str, int]:
    return {char: byte for byte, char in enumerate(byte_alphabet())}


def _show_bytes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    broken = error.object[error.start : error.end]
    return "".join(f"⟨0x{byte:02X}⟩" for byte in broken), error.end


codecs.register_error("batchspec-show", _show_bytes)
