"""Keys and values: one flat buffer a tensor, seen as rows × columns, and a ledger of what is where.

The buffers belong to us, not to the model library: a layout decides where a row
lies, and this file only writes, reads and moves cells. A *cell* is the K and V of
one token in one layer; *cell (r, c)* has the flat index `r · columns + c`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.models.host_transfer import Everywhere, Integers

LedgerArray = Integers
"""Of token ids, positions or columns."""

SLACK = 16
"""Spare columns, so that a rectangle is not laid out anew for every token."""

EMPTY = -1
"""Ledger entry of a cell to which nothing was written."""


class Write:
    """Where the next forward writes, and how far it reads.

    Either `start` (every row writes at the same columns: a slice) or `cells` (flat
    indices, row-major over [rows, tokens]: each row at its own offset). `read` columns of
    the first `rows` rows are attended to; 0 means the block itself (a prefill).
    """

    def __init__(
        self, *, rows: int, read: int, start: int | None = None, cells: Tensor | None = None
    ) -> None:
        self.rows = rows
        self.read = read
        self.start = start
        self.cells = cells
        self._everywhere = None if cells is None else Everywhere(cells)

    def cells_on(self, device: torch.device) -> Tensor:
        """`cells` on a device, where they are brought once and not for every layer."""
        assert self._everywhere is not None
        return self._everywhere.on(device)

    def flat(self, rows: int, tokens: int, columns: int) -> Tensor:
        """Flat indices of the cells that are written, [rows · tokens], row-major, in a grid
        of so many columns."""
        if self.cells is not None:
            return self.cells
        assert self.start is not None
        block = self.start + np.arange(tokens)
        return torch.from_numpy((np.arange(rows)[:, None] * columns + block).reshape(-1))


class KVStore:
    """The cache of one model: for each layer K and V as [rows, columns, heads, head dim].

    Buffers are zeroed when they are made, since a NaN in a masked value still
    spreads, and finite rubbish does not.

    Attributes:
        buffers: k0, v0, k1, v1, …, each [cells, heads, head dim]. Others may follow, whose cells
            move with them.
        ids: token id that was written to each cell, [rows, columns].
        positions: position ID with which it was written, [rows, columns].
    """

    def __init__(self) -> None:
        self.rows = 0
        self.columns = 0
        self.buffers: list[Tensor] = []
        self._spare: dict[tuple[object, ...], Tensor] = {}
        self.ids: LedgerArray = np.full((0, 0), EMPTY, np.int64)
        self.positions: LedgerArray = np.full((0, 0), EMPTY, np.int64)

    # ---- shape ---------------------------------------------------------------------

    def clear(self, rows: int, columns: int) -> None:
        """Start afresh with an empty grid. Buffers that are large enough are used again."""
        self.rows, self.columns = rows, columns
        self.ids = np.full((rows, columns), EMPTY, np.int64)
        self.positions = np.full((rows, columns), EMPTY, np.int64)
        for index, buffer in enumerate(self.buffers):
            if buffer.shape[0] < rows * columns:
                self.buffers[index] = buffer.new_zeros((rows * columns, *buffer.shape[1:]))
            else:
                buffer.zero_()

    def release(self) -> None:
        """Give the memory back; the store can only be cleared and filled again."""
        self.buffers.clear()
        self._spare.clear()

    def regrid(self, source: LedgerArray) -> int:
        """Move every cell at once: new cell j holds what was in old cell `source[j]`.

        One gather a tensor, with indices computed once for all layers. Entries of −1
        are cells that hold nothing; they receive some finite cell of the same row.

        Args:
            source: old flat cell indices, [new rows, new columns].

        Returns:
            Bytes read and written for cells that hold something.
        """
        return self.gather(self, source)

    def gather(self, other: KVStore, source: LedgerArray) -> int:
        """Become a grid of another store's cells (`regrid` tells the rest)."""
        held = source >= 0
        fill = np.where(held.any(axis=1), np.where(held, source, 0).max(axis=1), 0)
        flat = np.where(held, source, fill[:, None]).reshape(-1)
        cells = len(flat)
        moved = 0
        indices = Everywhere(torch.from_numpy(flat))
        for place, buffer in enumerate(other.buffers):
            target = self._room_for(place, buffer, cells, spare=other is self)
            torch.index_select(buffer, 0, indices.on(buffer.device), out=target[:cells])
            if other is self:  # the buffer that was read is the next one's target
                self._spare[_kind(buffer)] = buffer
            self.buffers[place] = target
            moved += 2 * int(held.sum()) * buffer[0].numel() * buffer.element_size()
        ids, positions = other.ids.reshape(-1), other.positions.reshape(-1)
        self.ids = np.where(held, ids[flat].reshape(source.shape), EMPTY)
        self.positions = np.where(held, positions[flat].reshape(source.shape), EMPTY)
        self.rows, self.columns = source.shape
        return moved

    def _room_for(self, place: int, like: Tensor, cells: int, *, spare: bool) -> Tensor:
        """A buffer for at least so many cells: the spare one, or the one in place."""
        found: Tensor | None = None
        if spare:
            found = self._spare.pop(_kind(like), None)
        elif place < len(self.buffers):
            found = self.buffers[place]
        else:
            self.buffers.append(like[:0])
        if found is None or found.shape[0] < cells:
            found = like.new_zeros((cells + cells // 4, *like.shape[1:]))
        return found

    def copy_cells(self, other: KVStore, source: LedgerArray, target: LedgerArray) -> int:
        """Copy cells `source` of another store (flat indices) to cells `target` of this one.

        Returns:
            Bytes read and written.
        """
        moved = 0
        while len(self.buffers) < len(other.buffers):
            model = other.buffers[len(self.buffers)]
            self.buffers.append(model.new_zeros((self.rows * self.columns, *model.shape[1:])))
        sources = Everywhere(torch.from_numpy(source))
        targets = Everywhere(torch.from_numpy(target))
        for mine, theirs in zip(self.buffers, other.buffers, strict=True):
            picked = theirs.index_select(0, sources.on(theirs.device))
            mine.index_copy_(0, targets.on(mine.device), picked)
            moved += 2 * picked.numel() * picked.element_size()
        self.ids.reshape(-1)[target] = other.ids.reshape(-1)[source]
        self.positions.reshape(-1)[target] = other.positions.reshape(-1)[source]
        return moved

    def forget(self, cells: LedgerArray) -> None:
        """Note that cells hold nothing any more. What is in the tensors stays, masked."""
        self.ids.reshape(-1)[cells] = EMPTY
        self.positions.reshape(-1)[cells] = EMPTY

    def zero_row(self, row: int) -> None:
        """Forget a row whose cells may hold non-finite numbers."""
        for buffer in self.buffers:
            buffer[row * self.columns : (row + 1) * self.columns].zero_()

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all buffers, the spare ones included."""
        tensors = [*self.buffers, *self._spare.values()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    # ---- what a layer of the model does ------------------------------------------------

    def update(
        self, layer: int, keys: Tensor, values: Tensor, write: Write
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's block, and return what is to be attended to.

        Args:
            layer: index of the layer.
            keys, values: [rows, heads, tokens, head dim].

        Returns:
            Views [rows, heads, read columns, head dim]; nothing is copied.
        """
        return self.write(2 * layer, keys, write), self.write(2 * layer + 1, values, write)

    def write(self, place: int, block: Tensor, write: Write) -> Tensor:
        """Write a block, [rows, heads, tokens, head dim], into buffer number `place`.

        Returns:
            A view [rows, heads, read columns, head dim], or the block where nothing is read.
        """
        rows, heads, tokens, dim = block.shape
        while len(self.buffers) <= place:
            self.buffers.append(block.new_zeros((self.rows * self.columns, heads, dim)))
        buffer = self.buffers[place]
        grid = buffer[: self.rows * self.columns].view(self.rows, self.columns, heads, dim)
        if write.cells is None:
            assert write.start is not None
            grid[:rows, write.start : write.start + tokens] = block.transpose(1, 2)
        else:
            cells = write.cells_on(buffer.device)
            buffer.index_copy_(0, cells, block.transpose(1, 2).reshape(rows * tokens, heads, dim))
        if write.read == 0:
            return block
        return grid[: write.rows, : write.read].transpose(1, 2)

    def stamp(self, cells: LedgerArray, ids: LedgerArray, positions: LedgerArray) -> None:
        """Note in the ledger which tokens a forward wrote, and at which positions.

        Args:
            cells: flat cell indices; ids, positions: what was fed there, same shape.
        """
        self.ids.reshape(-1)[cells.reshape(-1)] = ids.reshape(-1)
        self.positions.reshape(-1)[cells.reshape(-1)] = positions.reshape(-1)


def _kind(buffer: Tensor) -> tuple[object, ...]:
    """Buffers of one kind may stand in for one another."""
    return (buffer.device, buffer.dtype, *buffer.shape[1:])
