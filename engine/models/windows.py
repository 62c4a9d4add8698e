"""Sliding windows: layers in which a token sees only the newest tokens before it.

A window of W shows a query the newest W tokens, itself among them: that is how
transformers counts in all of its causal models (`kv_idx > q_idx − W`). It counts columns,
which are the row's tokens only where the row is alone. In a batch a row's columns begin with
padding, or end with stale slots, so here the cells are counted that the query may attend to:
those are its row's content, in order, wherever they lie.

One size serves a whole model, since a configuration has only one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor

from engine.records.row import Span

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True)
class Windows:
    """Which layers of a model have a window.

    Attributes:
        size: W, in tokens; 0: no layer has one.
        layers: by layer, whether it has.
    """

    size: int = 0
    layers: tuple[bool, ...] = ()

    @property
    def everywhere(self) -> bool:
        """Whether no layer sees farther."""
        return self.size > 0 and all(self.layers)

    def cuts(self, columns: int) -> bool:
        """Whether a query that may see so many columns could see fewer through a window."""
        return 0 < self.size < columns


def newest_attended(mask: Tensor, size: int) -> Tensor:
    """The newest `size` cells that each query may attend to.

    A row's cells are numbered once for all its queries: each sees the first of them, up to
    the newest that it sees.

    Args:
        mask: [..., tokens, columns], bool, True = attend; a row's content lies in order.
    """
    numbers = mask.any(dim=-2, keepdim=True).cumsum(-1, dtype=torch.int32)
    newest = mask.shape[-1] - 1 - mask.flip(-1).to(torch.uint8).argmax(-1, keepdim=True)
    newest = numbers.expand(*mask.shape[:-1], -1).gather(-1, newest)
    return mask & (numbers > newest - size)


def newest_columns(mask: Tensor, size: int, start: int) -> Tensor:
    """The same counted in columns, padding and holes included, as the library does in a batch.

    Args:
        mask: [rows, 1, tokens, columns].
        start: column of the first query.
    """
    tokens, columns = mask.shape[-2:]
    queries = start + torch.arange(tokens, device=mask.device)[:, None]
    return mask & (torch.arange(columns, device=mask.device) > queries - size)


def mark_hidden(spans: tuple[Span, ...], hidden: Flags, everywhere: bool) -> tuple[Span, ...]:
    """Say of which cells the layers with a window see nothing.

    Args:
        spans: one row, from column 0 on.
        hidden: by column, whether no query of the block sees it through a window.
        everywhere: whether every layer has a window: then nothing attends to such a cell.
    """
    marked: list[Span] = []
    column = 0
    for span in spans:
        for begin, end, beyond in _stretches(hidden[column : column + span.length], span.length):
            part = _part(span, begin, end)
            if beyond and span.attended:
                part = replace(part, beyond=True, attended=not everywhere)
            marked.append(part)
        column += span.length
    return tuple(marked)


def _stretches(hidden: Flags, length: int) -> Iterator[tuple[int, int, bool]]:
    """Neighbours of one kind; cells without a flag are seen."""
    flags = np.zeros(length, bool)
    flags[: len(hidden)] = hidden
    begin = 0
    for at in range(1, length + 1):
        if at == length or flags[at] != flags[begin]:
            yield begin, at, bool(flags[begin])
            begin = at


def _part(span: Span, begin: int, end: int) -> Span:
    if begin == 0 and end == span.length:
        return span
    return replace(
        span,
        length=end - begin,
        first=span.first + begin if span.kind in ("content", "ghost") else span.first,
        tokens=span.tokens[begin:end],
        position=None if span.position is None else span.position + begin,
    )
