"""A causal language model as the engine sees it. The one place that touches transformers.

transformers' cache and mask interfaces keep moving between releases, so the cache
is ours (`engine.models.kv_cache`), the mask is ours (4-D, boolean, passed through untouched), and
this file adapts the little that is left. Which cells a layer may see is settled in the
mask, and our attention function takes each layer's own: what an architecture makes of its
configuration on the way (a dictionary of masks, a window of its own) plays no part.
"""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin

from engine.models.architectures import check_architecture, context_of, windows_of
from engine.models.attention import ATTENTION, Attending, prepare_layers
from engine.models.forward_input import Feed, Packing
from engine.models.host_transfer import to_device
from engine.models.kv_cache import KVStore, Write
from engine.models.prepack import prepack


class Reader(Protocol):
    """Looks on at a model's forwards (`engine.models.eagle`)."""

    def after_forward(self, store: KVStore, write: Write) -> None:
        """Called after each forward, with the cache and where the block was written."""


class LanguageModel:
    """A target or a draft.

    Args:
        hf_model: a causal LM of transformers, in eval mode, on its device.
        hot_ids: [M] token ids of the head's columns, where the head covers only a hot
            vocabulary; None when column j is token j.
        eos_ids: every id that ends a row.
        name: shown to users.

    Attributes:
        carries_state: whether it hands a state of its own from one forward to the next,
            beside the cache.
        reader: looks on at its forwards, if anyone does.
    """

    carries_state = False
    reader: Reader | None = None

    def __init__(
        self,
        hf_model: Any,
        *,
        hot_ids: Tensor | None = None,
        eos_ids: tuple[int, ...] = (),
        name: str = "",
    ) -> None:
        check_architecture(hf_model, name)
        self.hf: Any = hf_model.eval()
        self.hf.set_attn_implementation(ATTENTION)
        prepack(self.hf)
        self.hot_ids = hot_ids
        self.eos_ids = eos_ids
        self.name = name
        config = self.hf.config.get_text_config()
        self.family: str = config.model_type
        self.vocabulary: int = config.vocab_size
        self.layers: int = config.num_hidden_layers
        self.context: int = context_of(config)
        self.windows = windows_of(config)
        self._plan = prepare_layers(self.hf, self.windows)
        heads: int = config.num_attention_heads
        kv_heads: int = getattr(config, "num_key_value_heads", None) or heads
        head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.kv_heads, self.head_dim = kv_heads, head_dim
        self._groups = heads // kv_heads
        self._cache_keyword = cache_keyword(self.hf)

    @property
    def device(self) -> torch.device:
        """Where ids are fed."""
        return torch.device(self.hf.device)

    @property
    def dtype(self) -> torch.dtype:
        return self.hf.dtype  # type: ignore[no-any-return]

    @property
    def kv_bytes_per_token(self) -> int:
        """K and V of one token over all layers, in bytes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize

    def forward(self, feed: Feed, store: KVStore, *, keep: int = 0) -> Tensor:
        """Run the model over a block and write its K/V into the store.

        Args:
            feed: the block.
            store: this model's cache.
            keep: how many of the last tokens need logits; 0 = all.

        Returns:
            Logits [rows, tokens kept, head columns], or [real tokens, head columns] of a
            packed block of which all are kept; `token_ids` maps columns to tokens. Those of a
            row that has no real token are another's.
        """
        device = self.device
        # a draft's vocabulary may be the smaller one: ids that only the target has are cut
        ids = to_device(feed.ids, device).clamp(max=self.vocabulary - 1)
        positions, write = to_device(feed.positions, device), feed.write
        packing = Packing(feed, store, device) if feed.ragged and keep <= 1 else None
        if packing is not None:
            ids, positions = packing.pack(ids), packing.pack(positions)
            write = packing.write
        self._plan.current = Attending(
            feed, self.windows, self._groups, self.dtype, device, packing
        )
        try:
            output = self.hf(
                **self.inputs(ids, feed, store, packing),
                position_ids=positions,
                attention_mask=to_device(feed.mask, device),  # untouched, for it is 4-D
                use_cache=True,
                logits_to_keep=to_device(feed.ends, device) if packing and keep else keep,
                **{self._cache_keyword: stored_cache(store, self.layers, write)},
            )
        finally:
            self._plan.current = None
        if self.reader is not None:
            self.reader.after_forward(store, write)
        logits: Tensor = output.logits
        if packing is None:
            return logits
        return logits[0][:, None] if keep else logits[0]

    def inputs(
        self, ids: Tensor, feed: Feed, store: KVStore, packing: Packing | None
    ) -> dict[str, Tensor]:
        """What the model is given of a block's tokens: `ids`, packed if the block is."""
        return {"input_ids": ids}

    def connect(self, target: LanguageModel, target_store: KVStore, store: KVStore) -> None:
        """Learn, as a draft, of the target's cache. The cells of both lie alike.

        Most drafts read tokens alone, and have no use for it.
        """

    def token_ids(self, columns: Tensor) -> Tensor:
        """Token ids of the head's columns (they differ only for a hot vocabulary)."""
        return columns if self.hot_ids is None else self.hot_ids[columns]


def cache_keyword(hf_model: nn.Module) -> str:
    """transformers 5.24 renamed `past_key_values` to `cache`; the old name warns until 5.40."""
    parameters = inspect.signature(inspect.unwrap(type(hf_model).forward)).parameters
    return "cache" if "cache" in parameters else "past_key_values"


class _StoreLayer(CacheLayerMixin):
    """transformers' view of one layer of a `KVStore`."""

    is_compileable = False
    is_sliding = False

    def __init__(self, store: KVStore, layer: int, write: Write) -> None:
        super().__init__()
        self.store = store
        self.layer = layer
        self.write = write
        self.is_initialized = True

    def lazy_initialization(self, *_: Any, **__: Any) -> None:
        """Nothing to do: the store makes its buffers at the first write."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        return self.store.update(self.layer, key_states, value_states, self.write)

    def get_seq_length(self, *_: Any) -> int:
        return self.write.read

    def get_mask_sizes(self, *_: Any) -> tuple[int, int]:
        return self.get_seq_length(), 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # the name before transformers 5.16


def stored_cache(store: KVStore, layers: int, write: Write) -> Cache:
    """transformers' cache object over a store, for one forward."""
    return Cache(layers=[_StoreLayer(store, layer, write) for layer in range(layers)])
