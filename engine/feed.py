"""What one forward is given: a block of tokens, and how only its real ones are computed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from engine.kv import KVStore, Write
from engine.transfer import to_device
from engine.windows import Windows, newest_attended, newest_columns

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Feed:
    """One forward pass: what is read in, where it is written, what it may attend to.

    Attributes:
        ids, positions: [rows, tokens], on any device.
        mask: [rows, 1, tokens, columns read], bool, True = attend.
        write: where K/V go, and how many columns are read.
        counts: how many tokens of each row are real (the first ones); None = all. Only
            those are computed: the block is packed into one long row for everything but
            the attention itself, and unpacked again.
        pack: whether that is wanted (strict mode keeps its shape).
        ahead: whether the block lies beyond the committed tokens: a draft's own proposals.
        columnwise: whether sliding windows count columns, as the library's own masks do
            (the published baselines), and not the row's content.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    write: Write
    counts: list[int] | None = None
    pack: bool = True
    ahead: bool = False
    columnwise: bool = False
    _masks: dict[tuple[int, torch.device], Tensor] = field(default_factory=dict, repr=False)

    def masks(self, windows: Windows, device: torch.device = CPU) -> Tensor:
        """What each kind of layer may attend to: [rows, kinds, tokens, columns].

        Kind 0 are the layers that see everything before; kind 1, which is only there where
        it differs, those that have a window.
        """
        if not windows.cuts(self.mask.shape[-1]):
            return to_device(self.mask, device)
        key = windows.size, device
        if key not in self._masks:
            mask = to_device(self.mask, device)
            if self.columnwise and self.write.start is not None:
                near = newest_columns(mask, windows.size, self.write.start)
            else:
                near = newest_attended(mask, windows.size)
            self._masks[key] = torch.cat([mask, near], dim=1)
        return self._masks[key]

    @property
    def ragged(self) -> bool:
        """Whether the block is to be packed, and that saves anything."""
        return self.pack and self.counts is not None and sum(self.counts) < self.ids.numel()

    @property
    def real(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Which tokens are real, [rows, tokens]."""
        rows, tokens = self.ids.shape
        counts = np.full(rows, tokens) if self.counts is None else np.array(self.counts)
        return np.arange(tokens) < counts[:, None]


class Packing:
    """A ragged block as one long row of its real tokens.

    All that a transformer does with a token but attention is done to each token alone, so
    a batch whose rows feed 1, 6 and 2 tokens costs 9 of them, not 18.

    Args:
        feed: a block with counts.
        store: the cache it is written to.
        device: of the model.
    """

    def __init__(self, feed: Feed, store: KVStore, device: torch.device) -> None:
        assert feed.counts is not None
        rows, tokens = feed.ids.shape
        self.shape = (rows, tokens)
        flat = np.flatnonzero(feed.real)
        back = np.zeros(rows * tokens, np.int64)
        back[flat] = np.arange(len(flat))
        self._flat = to_device(torch.from_numpy(flat), device)
        self._back = to_device(torch.from_numpy(back), device)
        cells = feed.write.flat(rows, tokens, store.columns)[torch.from_numpy(flat)]
        self.write = Write(rows=feed.write.rows, read=feed.write.read, cells=cells)

    def pack(self, block: Tensor) -> Tensor:
        """[rows, tokens] → [1, real tokens]."""
        return block.reshape(-1)[self._flat][None]

    def unpack(self, packed: Tensor) -> Tensor:
        """[real tokens, …] → [rows, tokens, …]; cells that are not real hold some token's."""
        back = self._back.to(packed.device)  # a large target's layers may lie on several
        return packed[back].reshape(*self.shape, *packed.shape[1:])

    def repack(self, block: Tensor) -> Tensor:
        """[rows, tokens, …] → [1, real tokens, …]."""
        return block.reshape(-1, *block.shape[2:])[self._flat.to(block.device)][None]
