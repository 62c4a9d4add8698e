"""Forwards of a few fixed shapes, which CUDA can record once and then replay.

A decoding step is some hundred kernels that run for microseconds each; at small B their
launches from Python cost more than the kernels do. A CUDA graph launches all of them at
once, but it replays what was recorded to the letter: the same shapes at the same addresses.
So the inputs are copied into buffers that stay where they are, every slot takes part
whether a row is in it or not, and the columns read come in a few widths only. K/V must not
move either: only slots can do this (`engine.methods.slotspec`).

Nothing else depends on CUDA. Elsewhere the same forwards run through the same buffers, and
are computed where they would be replayed: that is how they are tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.config.errors import UserError
from engine.models.causal_lm import LanguageModel
from engine.models.forward_input import Feed
from engine.models.host_transfer import fill
from engine.models.kv_cache import KVStore, Write

WIDTHS = 8
"""Widths in which the columns are read, at most: each is a recording, and takes its time."""

STEP = 64
"""Widths are multiples of this many columns."""


class Shape(NamedTuple):
    """What makes two forwards of one model the same to a graph.

    Attributes:
        tokens: fed a row.
        read: columns.
        keep: last tokens that need logits; 0 = all.
    """

    tokens: int
    read: int
    keep: int


class FixedShapes:
    """The forwards of one model over one store, all rows of it at a time.

    Args:
        store: K/V, which stay where they are; made by the first forward.
        blocks: sizes (tokens a row, last tokens that need logits; 0 = all) that come often,
            and are recorded. Others are computed.
        whole: always read every column (strict mode has one shape).
        step: see `STEP`.

    Attributes:
        records: whether forwards are recorded: on CUDA.
    """

    def __init__(
        self,
        model: LanguageModel,
        store: KVStore,
        blocks: Iterable[tuple[int, int]],
        *,
        whole: bool = False,
        step: int | None = None,
    ) -> None:
        self.model = model
        self.store = store
        self.records = model.device.type == "cuda"
        step = step or STEP
        widths = -(-store.columns // step)
        self._step = store.columns if whole else step * -(-widths // WIDTHS)
        self._blocks = frozenset(blocks)
        self._forwards: dict[Shape, _Forward] = {}
        self._shared = _Shared()

    def read(self, columns: int) -> int:
        """The width in which so many columns are read."""
        return min(-(-columns // self._step) * self._step, self.store.columns)

    @torch.inference_mode()
    def prepare(self) -> None:
        """Record all widths of the blocks now: it takes a second or so, and would be charged
        to the rounds that come to them first."""
        if self.records:
            for tokens, keep in sorted(self._blocks):
                for end in range(self._step, self.store.columns + self._step, self._step):
                    self._forward(Shape(tokens, self.read(end), keep)).record()

    @torch.inference_mode()
    def forward(self, feed: Feed, store: KVStore, *, keep: int = 0) -> Tensor:
        """As `LanguageModel.forward`, for a block of every slot whose width is one of `read`.

        Returns:
            Logits [slots, tokens kept, head columns], which later forwards leave alone.
        """
        rows, tokens = feed.ids.shape
        assert store is self.store, "K/V of another cache"
        assert rows == store.rows, "every slot takes part"
        forward = self._forward(Shape(tokens, feed.write.read, keep))
        forward.take_in(feed)
        if self.records and (tokens, keep) in self._blocks:
            return forward.replay()
        return forward.compute()

    def _forward(self, shape: Shape) -> _Forward:
        if shape not in self._forwards:
            self._forwards[shape] = _Forward(self.model, self.store, shape, self._shared)
        return self._forwards[shape]


class _Shared:
    """What the graphs of one model have in common, since no two of them run at once: the
    memory for what lies between, and a place for the logits of each size of block."""

    def __init__(self) -> None:
        self.pool: Any = None
        self.logits: dict[tuple[int, int], Tensor] = {}


class _Forward:
    """One shape: its input buffers, and its graph once it is recorded."""

    def __init__(self, model: LanguageModel, store: KVStore, shape: Shape, shared: _Shared) -> None:
        self._model, self._store, self._shape, self._shared = model, store, shape, shared
        rows, device = store.rows, model.device
        self._ids = torch.zeros((rows, shape.tokens), dtype=torch.int64, device=device)
        self._positions = torch.zeros_like(self._ids)
        # until something is fed: a slot's last column is nobody's (`engine.methods.slotspec`)
        last = torch.arange(1, rows + 1, device=device)[:, None] * store.columns - 1
        self._cells = last.expand(-1, shape.tokens).reshape(-1).clone()
        seen = (rows, 1, shape.tokens, shape.read)
        self._mask = torch.zeros(seen, dtype=torch.bool, device=device)
        self._mask[..., 0] = True  # no row is fully masked
        self._graph: Graph | None = None

    def take_in(self, feed: Feed) -> None:
        """Copy a block into the buffers."""
        assert feed.write.cells is not None
        fill(self._ids, feed.ids)
        fill(self._positions, feed.positions)
        fill(self._mask, feed.mask)
        fill(self._cells, feed.write.cells)

    def compute(self) -> Tensor:
        """The forward, out of the buffers and into the cache."""
        write = Write(rows=self._store.rows, read=self._shape.read, cells=self._cells)
        # a new block each time: it keeps what it derives from its mask
        block = Feed(self._ids, self._positions, self._mask, write, pack=False)
        return self._model.forward(block, self._store, keep=self._shape.keep)

    def replay(self) -> Tensor:
        """The same by the graph."""
        self.record().replay()
        return self._logits.clone()

    def record(self) -> Graph:
        """The graph; a new one where the cache is not where it was when it was made."""
        if self._graph is None or self._graph.places != _addresses(self._store):
            # computed once on the stream of the run, where the cache is made at need
            logits = self.compute()
            self._shared.logits.setdefault(self._size, torch.empty_like(logits))
            try:
                self._graph = Graph(self._leave, self._model.device, self._shared)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                why = str(error).splitlines()[0]
                raise UserError(
                    f"--cuda-graphs: {self._model.name or 'the model'} cannot be recorded "
                    f"({why}): leave the option out"
                ) from error
            self._graph.places = _addresses(self._store)
        return self._graph

    def _leave(self) -> None:
        """Compute, and leave the logits where they are found after a replay."""
        self._logits.copy_(self.compute())

    @property
    def _size(self) -> tuple[int, int]:
        return self._shape.tokens, self._shape.keep

    @property
    def _logits(self) -> Tensor:
        return self._shared.logits[self._size]


class Graph:
    """A recorded computation.

    Args:
        compute: works on tensors that stay where they are.
        shared: memory for what lies between.

    Attributes:
        places: addresses of the cache that it relies on.
    """

    places: tuple[int, ...] = ()

    def __init__(self, compute: Callable[[], None], device: torch.device, shared: _Shared) -> None:
        self._device = device
        with torch.cuda.device(device):
            current = torch.cuda.current_stream()
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                for _ in range(2):  # libraries choose their kernels at the first calls
                    compute()
            current.wait_stream(stream)
            if shared.pool is None:
                shared.pool = torch.cuda.graph_pool_handle()
            self._graph = torch.cuda.CUDAGraph()
            # only this thread is recorded: others may use the device meanwhile
            with torch.cuda.graph(
                self._graph, pool=shared.pool, stream=stream, capture_error_mode="thread_local"
            ):
                compute()

    def replay(self) -> None:
        """Compute again, on what the buffers hold now."""
        with torch.cuda.device(self._device):
            self._graph.replay()


def _addresses(store: KVStore) -> tuple[int, ...]:
    return tuple(buffer.data_ptr() for buffer in store.buffers)


def require_graphs(models: Iterable[LanguageModel]) -> None:
    """Whether the forwards of these models can be recorded.

    Raises:
        UserError: one is not on a CUDA device, or on several.
    """
    for model in models:
        devices = sorted({str(weight.device) for weight in model.hf.parameters()})
        name = model.name or "the model"
        if any(not device.startswith("cuda") for device in devices):
            raise UserError(
                f"--cuda-graphs needs a CUDA device, and {name} is on {', '.join(devices)}: "
                "leave the option out"
            )
        if len(devices) > 1:
            raise UserError(
                f"--cuda-graphs needs each model on one device, and {name} is on "
                f"{', '.join(devices)}: leave the option out, or use --device cuda:0"
            )
