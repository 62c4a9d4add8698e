"""A table of the n-grams that a target habitually writes: n-grams, and what follows them.

A model writes most of what it writes again and again. Counting what followed each one to
four tokens in a few hundred thousand tokens of its own answers gives a draft that costs
nothing to run: look the row's last tokens up, longest context first (back-off), and
draft what followed most often, as long as it followed often enough.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from engine.config.errors import UserError

SCHEMA = "batchspec/phrases/1"

LONGEST = 4
"""Tokens of the longest context."""

SEEN = 2
"""Times that a continuation must have been seen."""

SHARE = 0.15
"""Share of a context's continuations below which its best one is not kept."""

SAME = 0.1
"""A longer context is kept only where it says another token, or this much more surely."""


class NgramTable:
    """What follows a context, and how surely.

    Args:
        entries: context (1 … 4 tokens) → (token, share of the context's continuations).
    """

    def __init__(self, entries: dict[tuple[int, ...], tuple[int, float]]) -> None:
        self.entries = entries

    def __len__(self) -> int:
        return len(self.entries)

    def follow(self, tokens: Sequence[int], count: int) -> Iterator[tuple[int, float]]:
        """Up to `count` tokens after `tokens`, each with the share of the cases in which it
        came next."""
        context = list(tokens[-LONGEST:])
        for _ in range(count):
            entry = self._best(context)
            if entry is None:
                return
            yield entry
            context = [*context, entry[0]][-LONGEST:]

    def _best(self, context: list[int]) -> tuple[int, float] | None:
        for size in range(len(context), 0, -1):
            entry = self.entries.get(tuple(context[-size:]))
            if entry is not None:
                return entry
        return None

    @classmethod
    def count(cls, sequences: Iterable[Sequence[int]]) -> NgramTable:
        """Make a table of token sequences that the target wrote."""
        after: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for sequence in sequences:
            row = [int(token) for token in sequence]
            for at in range(1, len(row)):
                for size in range(1, min(LONGEST, at) + 1):
                    after[tuple(row[at - size : at])][row[at]] += 1
        entries: dict[tuple[int, ...], tuple[int, float]] = {}
        for context in sorted(after, key=len):  # shorter contexts first: they are backed off to
            token, seen = after[context].most_common(1)[0]
            share = seen / (after[context].total() + 1)
            shorter = entries.get(context[1:])
            repeats = shorter is not None and shorter[0] == token and abs(shorter[1] - share) < SAME
            if seen >= SEEN and share >= SHARE and not repeats:
                entries[context] = (token, share)
        return cls(entries)

    def save(self, file: Path, facts: dict[str, str] | None = None) -> None:
        """Write the table: per size the contexts, the tokens and the shares (in 1/255)."""
        arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = {}
        for size in range(1, LONGEST + 1):
            rows = sorted(context for context in self.entries if len(context) == size)
            said = [self.entries[context] for context in rows]
            arrays[f"contexts{size}"] = np.array(rows, np.int32).reshape(len(rows), size)
            arrays[f"tokens{size}"] = np.array([token for token, _ in said], np.int32)
            arrays[f"shares{size}"] = np.array([round(255 * s) for _, s in said], np.uint8)
        save_file(arrays, file, metadata={"schema": SCHEMA, **(facts or {})})

    @classmethod
    def load(cls, file: Path, vocabulary: int) -> NgramTable:
        """Read a table.

        Args:
            vocabulary: of the target; a table with ids beyond it is another target's.

        Raises:
            UserError: there is no such file, or it is no table of this target.
        """
        entries: dict[tuple[int, ...], tuple[int, float]] = {}
        try:
            with safe_open(file, framework="numpy") as held:
                if (held.metadata() or {}).get("schema") != SCHEMA:
                    raise UserError(f"{file} is no table of n-grams (schema {SCHEMA})")
                for size in range(1, LONGEST + 1):
                    contexts = held.get_tensor(f"contexts{size}").tolist()
                    tokens = held.get_tensor(f"tokens{size}").tolist()
                    shares = held.get_tensor(f"shares{size}").tolist()
                    for context, token, share in zip(contexts, tokens, shares, strict=True):
                        entries[tuple(context)] = (token, share / 255)
        except (OSError, SafetensorError, ValueError) as error:
            raise UserError(f"cannot read the n-grams in {file}: {error}") from error
        if any(token >= vocabulary for token, _ in entries.values()):
            raise UserError(f"{file} was made for another target: it has ids past {vocabulary}")
        return cls(entries)


def token_rows(file: Path) -> list[list[int]]:
    """The rows of a token file (safetensors: `tokens`, and `offsets` that cut them).

    Raises:
        UserError: the file cannot be read as such.
    """
    try:
        held = load_file(file)
        tokens, offsets = held["tokens"], held["offsets"]
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError(f"{file} holds no token data: {error}") from error
    return [part.tolist() for part in np.split(tokens, offsets[1:-1])]
