"""What one forward is given: a block of tokens, and how only its real ones are computed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from engine.models.host_transfer import Everywhere, to_device
from engine.models.kv_cache import KVStore, Write
from engine.models.windows import Windows, newest_attended, newest_columns

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Feed:
    """One forward pass: what is read in, where it is written, what it may attend to.

    Attributes:
        ids, positions: [rows, tokens], on any device.
        mask: [rows, 1, tokens, columns read], bool, True = attend.
        write: where K/V go, and how many columns are read.
        counts: how many tokens of each row are real; None = all. Only
            those are computed: the block is packed into one long row for everything but
            the attention itself (`engine.models.attention`).
        latest: whether these are the last ones of each row, and not the first.
        pack: whether that is wanted (strict mode keeps its shape).
        ahead: whether the block lies beyond the committed tokens: a draft's own draft tokens.
        columnwise: whether sliding windows count columns, as the library's own masks do
            (the published baselines), and not the row's content.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    write: Write
    counts: list[int] | None = None
    latest: bool = False
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
        order = np.arange(tokens)
        return (order[::-1] if self.latest else order) < counts[:, None]

    @property
    def ends(self) -> Tensor:
        """Of a ragged block: where in its packed tokens each row's last one is, [rows]. A row
        without any gets another's."""
        assert self.counts is not None
        return torch.from_numpy((np.cumsum(self.counts) - 1).clip(min=0))


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
        self._real = feed.real
        flat = np.flatnonzero(self._real)
        self._place = np.zeros((rows, tokens), np.int64)
        self._place[self._real] = np.arange(len(flat))
        self._flat = Everywhere(to_device(torch.from_numpy(flat), device))
        cells = feed.write.flat(rows, tokens, store.columns)[torch.from_numpy(flat)]
        self.write = Write(rows=feed.write.rows, read=feed.write.read, cells=cells)

    def pack(self, block: Tensor) -> Tensor:
        """[rows, tokens, …] → [1, real tokens, …]."""
        return block.reshape(-1, *block.shape[2:])[self._flat.on(block.device)][None]

    def through(self, cuts: list[tuple[slice, slice]]) -> tuple[list[Tensor], Tensor]:
        """The way of packed tokens through rectangles (rows, tokens) that cover the block.

        All of it is worked out on the host.

        Returns:
            For each rectangle the packed token in each of its cells, row-major (some token's
            in cells that are not real); and where, with the rectangles laid end to end,
            each packed token is then.
        """
        picks = [self._place[cut].reshape(-1) for cut in cuts]
        real = np.concatenate([self._real[cut].reshape(-1) for cut in cuts])
        back = np.zeros(int(self._real.sum()), np.int64)
        back[np.concatenate(picks)[real]] = np.flatnonzero(real)
        return [torch.from_numpy(pick) for pick in picks], torch.from_numpy(back)
