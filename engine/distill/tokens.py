"""Token sequences in a safetensors file: ``tokens``, ``offsets`` and ``answer_start``.

Sequence ``i`` is ``tokens[offsets[i]:offsets[i+1]]``; ``answer_start[i]`` is where its answer
begins, −1 where that was not kept.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.config.errors import UserError


@dataclass(frozen=True)
class TokenData:
    tokens: Tensor  # int32 [total]
    offsets: Tensor  # int64 [sequences + 1]
    answer_start: Tensor  # int64 [sequences]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self) -> Tensor:
        return self.offsets[1:] - self.offsets[:-1]

    def sequence(self, index: int) -> Tensor:
        return self.tokens[int(self.offsets[index]) : int(self.offsets[index + 1])].long()

    def key(self) -> str:
        """A short name of the content: labels made from it are found again by it."""
        digest = hashlib.sha256(self.tokens.numpy().tobytes())
        digest.update(self.offsets.numpy().tobytes())
        return digest.hexdigest()[:12]

    @staticmethod
    def of(sequences: Sequence[Sequence[int]], answer_start: Sequence[int]) -> TokenData:
        flat = [token for sequence in sequences for token in sequence]
        lengths = torch.tensor([0, *map(len, sequences)], dtype=torch.long)
        return TokenData(
            torch.tensor(flat, dtype=torch.int32),
            lengths.cumsum(0),
            torch.tensor(list(answer_start), dtype=torch.long),
        )

    def join(self, other: TokenData) -> TokenData:
        return TokenData(
            torch.cat([self.tokens, other.tokens]),
            torch.cat([self.offsets, other.offsets[1:] + self.offsets[-1]]),
            torch.cat([self.answer_start, other.answer_start]),
        )

    def find_answers(self, marker: list[int]) -> TokenData:
        """Fill in unknown answer starts: behind the last place where ``marker`` stands."""
        if not marker:
            return self
        starts = self.answer_start.clone()
        wanted, width = torch.tensor(marker), len(marker)
        for i in (starts < 0).nonzero()[:, 0].tolist():
            sequence = self.sequence(i)
            if len(sequence) >= width:
                hits = (sequence.unfold(0, width, 1) == wanted).all(1).nonzero()
                if len(hits):
                    starts[i] = int(hits[-1]) + width
        return TokenData(self.tokens, self.offsets, starts)


def save_tokens(data: TokenData, path: Path) -> None:
    """Write atomically: a reader sees the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    save_file(
        {
            "tokens": data.tokens.to(torch.int32).contiguous(),
            "offsets": data.offsets.to(torch.int32).contiguous(),
            "answer_start": data.answer_start.to(torch.int32).contiguous(),
        },
        temporary,
    )
    os.replace(temporary, path)


def load_tokens(path: Path, vocab_size: int) -> TokenData:
    try:
        raw = load_file(path)
        tokens, offsets = raw["tokens"].to(torch.int32), raw["offsets"].long()
    except FileNotFoundError:
        raise UserError(f"no token data at {path}") from None
    except (SafetensorError, KeyError, OSError) as error:
        raise UserError(
            f"{path} is no token data (safetensors with tokens, offsets and answer_start): {error}"
        ) from None
    starts = raw.get("answer_start", torch.full((len(offsets) - 1,), -1)).long()
    sound = (
        len(offsets) > 1
        and int(offsets[0]) == 0
        and bool((offsets[1:] >= offsets[:-1]).all())
        and int(offsets[-1]) == len(tokens)
        and len(starts) == len(offsets) - 1
    )
    if not sound:
        raise UserError(f"{path}: the offsets do not fit the tokens")
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab_size:
        raise UserError(f"{path} holds token ids that the target's vocabulary ({vocab_size}) lacks")
    return TokenData(tokens, offsets, starts)
