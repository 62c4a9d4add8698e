"""What a run needs of a device's memory, reckoned before any of it is taken.

Weights are known to the byte. K/V follow from the method's layout, logits and the work
space from the largest block that is fed. The figures are upper bounds that a run comes
close to when its rows use up their budget (tests/measure_memory.py compares them with
what runs really take).
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from engine.config.settings import Sampling, Settings
from engine.models.kv_cache import SLACK

if TYPE_CHECKING:
    from engine.models.causal_lm import LanguageModel

_GROWN = 1.12
"""A rectangle grows by a quarter when it is full: on average it has an eighth to spare."""

_LIBRARIES = 96 << 20
"""Bytes that tokenizers and the libraries' own buffers take, however small the models are."""


@dataclass(frozen=True)
class Sizes:
    """What a model's memory follows from.

    Attributes:
        groups: query heads for each K/V head.
        inner: width of the feed-forward layers.
        columns: of the head.
        itemsize: bytes of a number.
        weights: bytes, with copies that are made of them on the CPU; 0: they are loaded.
    """

    layers: int
    kv_heads: int
    head_dim: int
    groups: int
    hidden: int
    inner: int
    columns: int
    itemsize: int
    weights: int = 0

    @property
    def kv_per_token(self) -> int:
        """K and V of one token over all layers, in bytes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.itemsize


def sizes_of_config(config: Any, itemsize: int, weights: int = 0) -> Sizes:
    """The sizes that a configuration of transformers' says."""
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    hidden = config.hidden_size
    inner = next(
        (
            value
            for name in ("intermediate_size", "ffn_dim", "n_inner")
            if (value := getattr(config, name, None))
        ),
        4 * hidden,
    )
    return Sizes(
        layers=config.num_hidden_layers,
        kv_heads=kv_heads,
        head_dim=getattr(config, "head_dim", None) or hidden // heads,
        groups=heads // kv_heads,
        hidden=hidden,
        inner=inner,
        columns=config.vocab_size,
        itemsize=itemsize,
        weights=weights,
    )


def sizes_of(model: LanguageModel) -> Sizes:
    """The sizes of a model that is loaded."""
    return sizes_of_config(model.hf.config.get_text_config(), model.dtype.itemsize)


@dataclass(frozen=True)
class Demand:
    """What a run is like, as far as memory depends on it.

    Attributes:
        rows: at once.
        slots: B: those that slotspec keeps, used or not.
        pool_rows: rows of exspec's pool cache, used or not.
        columns: the longest that a row may become.
        longest: tokens that are prefilled of the longest row.
        room: tokens a row in a block, K + 1.
        inspect: whether each token's probabilities are recorded.
    """

    method: str
    rows: int
    slots: int
    pool_rows: int
    columns: int
    longest: int
    room: int
    sampling: Sampling
    inspect: bool = False


def demand_of(settings: Settings, lengths: Seq[int], context: int) -> Demand:
    """What settings make of prompts of these lengths."""
    if not lengths:
        lengths = [1]
    plain = settings.method == "autoregressive" and not settings.strict
    tokens = 0 if plain else settings.largest_draft_tokens
    return Demand(
        method=settings.method,
        rows=min(settings.batch_size, len(lengths)),
        slots=settings.batch_size,
        pool_rows=max(settings.window, settings.batch_size),
        columns=max(min(length + settings.max_new_tokens, context) for length in lengths),
        longest=min(max(lengths), context),
        room=tokens + 1,
        sampling=settings.sampling,
        inspect=settings.inspect,
    )


@dataclass(frozen=True)
class Need:
    """Bytes on one device.

    Attributes:
        work: what a forward needs beside its results.
    """

    weights: int = 0
    kv: int = 0
    logits: int = 0
    work: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.logits + self.work

    def __add__(self, other: Need) -> Need:
        """Both at the same time."""
        return Need(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def need_of(sizes: Sizes, demand: Demand, *, drafts: bool = False) -> Need:
    """What one model needs for a run, its weights with it.

    Args:
        drafts: it is the draft.
    """
    kv = int(cells(demand, sizes.layers) * sizes.kv_per_token)
    logits = draft_logits(sizes, demand) if drafts else target_logits(sizes, demand)
    return Need(sizes.weights, kv, logits, work(sizes, demand) + _LIBRARIES // 2)


def together(lanes: Iterable[Need]) -> Need:
    """Runs side by side on the same weights: each has its caches, one at a time computes."""
    needs = list(lanes)
    return Need(
        weights=max(need.weights for need in needs),
        kv=sum(need.kv for need in needs),
        logits=max(need.logits for need in needs),
        work=max(need.work for need in needs),
    )


def cells(demand: Demand, layers: int) -> float:
    """Tokens whose K and V are held, spare buffers among them."""
    spare = 1.0 + 1.0 / (2 * layers)  # one buffer more than there are tensors
    rectangle = demand.rows * (demand.columns + demand.room + SLACK) * _GROWN * spare
    if demand.method == "slotspec":
        return demand.slots * (demand.columns + demand.room + 1)
    if demand.method == "exspec":
        return demand.pool_rows * (demand.columns + 1) + rectangle
    if demand.method == "bsp":  # every round leaves K + 1 columns, rejected or not
        written = (demand.columns - demand.longest) * (demand.room - 1) // 2
        return rectangle + demand.rows * written
    return rectangle


def target_logits(sizes: Sizes, demand: Demand) -> int:
    """Logits of the largest verification, and what is made of them."""
    size = sizes.itemsize
    after = 0
    if not demand.sampling.greedy:
        after = 28 if demand.sampling.top_p < 1.0 else 12  # sorting takes most
    elif demand.inspect:
        after = 4
    after += _in_float32(size) if after else 0
    # a packed block is put back beside itself; that copy is gone before they are verified
    each = max(2 * size, size + after)
    return demand.rows * demand.room * sizes.columns * each


def draft_logits(sizes: Sizes, demand: Demand) -> int:
    """Logits of a drafting step, and the distributions that are kept of all of them."""
    size = sizes.itemsize
    each, steps = 2 * size, demand.room - 1
    if not demand.sampling.greedy:
        each += 12 + _in_float32(size) + 8 * steps
    if demand.inspect:
        each += (2 * size + 4 + _in_float32(size)) * steps
    return demand.rows * sizes.columns * each


def _in_float32(itemsize: int) -> int:
    """Bytes of a copy in float32, where one is made."""
    return 0 if itemsize == 4 else 4


def work(sizes: Sizes, demand: Demand) -> int:
    """States, masks and attention of the largest forward, which is mostly the prefill."""
    wide = 8 * sizes.hidden + 4 * sizes.inner
    tokens = demand.rows * max(demand.longest, demand.room)
    prefill = demand.rows * demand.longest * demand.longest
    verify = demand.rows * demand.room * demand.columns
    seen = max(prefill, verify) * sizes.groups
    return tokens * wide * sizes.itemsize + seen * (2 + sizes.itemsize)
