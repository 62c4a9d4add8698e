"""A draft that reads what the target knows: the EAGLE-style draft.

An ordinary draft sees tokens alone and has to find out from them what the target found
out already. The target computed it for every committed token, so a few layers that are
handed its hidden states guess better than many that are not (EAGLE, arXiv 2401.15077;
several of its layers and training on the draft's own states: EAGLE-3, arXiv 2503.01840).

The target's side (`Features`) sums its states up in one vector a token, which is kept
beside K and V and moves with them. The draft's side (`EagleModel`) is an ordinary model
of a few layers whose input at token j is the token and the vector of token j − 1; beyond
the committed tokens its own last state stands in for the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from engine.models.causal_lm import LanguageModel
from engine.models.forward_input import Feed, Packing
from engine.models.host_transfer import to_device
from engine.models.kv_cache import KVStore, Write
from engine.models.prepack import prepack


class Features(nn.Module):
    """What the target knows at a token, in one vector.

    Args:
        hidden: width of the states, and of the vector.
        layers: indices of the target's layers that are read, beside its final state.
    """

    def __init__(self, hidden: int, layers: Sequence[int]) -> None:
        super().__init__()
        self.layers = tuple(layers)
        sources = len(self.layers) + 1
        self.norms = nn.ModuleList(nn.RMSNorm(hidden, eps=1e-5) for _ in range(sources))
        self.project = nn.Linear(sources * hidden, hidden, bias=False)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """States [rows, tokens, hidden] of each source, the final one first → [rows, tokens,
        hidden]."""
        pairs = zip(self.norms, states, strict=True)
        vector: Tensor = self.project(torch.cat([norm(state) for norm, state in pairs], dim=-1))
        return vector


class Fusion(nn.Module):
    """A token and the vector of the one before it, joined to the draft's input."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.token = nn.Linear(hidden, hidden, bias=False)
        self.own = nn.Linear(hidden, hidden, bias=False)

    def forward(self, embedded: Tensor, before: Tensor) -> Tensor:
        """Both [rows, tokens, hidden]; so is the result."""
        joined: Tensor = self.token(self.norm(embedded)) + before
        return joined

    def carry(self, state: Tensor) -> Tensor:
        """The vector that a state of the draft's own stands for, same shape."""
        vector: Tensor = self.own(state)
        return vector


class StateTap:
    """Keeps the states of the latest forward of a model.

    Args:
        hf_model: a causal LM of transformers.
        layers: whose outputs are kept, beside the final normed state.
    """

    def __init__(self, hf_model: Any, layers: Sequence[int] = ()) -> None:
        self._states: dict[int, Tensor] = {}
        self._order = (-1, *layers)
        inner: Any = hf_model.base_model
        self._hooks = [
            module.register_forward_hook(self._keep(index))
            for index, module in [(-1, inner), *((index, inner.layers[index]) for index in layers)]
        ]

    def _keep(self, index: int) -> Any:
        def hook(module: nn.Module, given: Any, output: Any) -> None:
            state: Any = output[0] if isinstance(output, tuple) else output
            self._states[index] = getattr(state, "last_hidden_state", state)

        return hook

    def take(self) -> list[Tensor]:
        """States of the latest forward, [rows, tokens, hidden] each, the final one first."""
        states = [self._states[index] for index in self._order]
        self._states.clear()
        return states

    def close(self) -> None:
        """Let go of the model."""
        for hook in self._hooks:
            hook.remove()


class EagleReader:
    """Hangs on the target: keeps the vector of each token in the last buffer of the cache.

    Args:
        hf_model: the target.
        features: sums its states up.
        layers: of the target, whose K/V come first in a cache.
    """

    def __init__(self, hf_model: Any, features: Features, layers: int) -> None:
        self._features = features.eval()
        prepack(self._features)
        self._tap = StateTap(hf_model, features.layers)
        self._layers = layers
        self._kept: WeakSet[KVStore] = WeakSet()

    def keep_in(self, store: KVStore) -> None:
        """Keep the vectors in this cache from now on; [cells, 1, width]."""
        self._kept.add(store)

    def after_forward(self, store: KVStore, write: Write) -> None:
        states = self._tap.take()
        if store in self._kept:
            vectors: Tensor = self._features(states)
            store.write(2 * self._layers, vectors[:, None], write)

    def vectors(self, store: KVStore, cells: Tensor) -> Tensor:
        """The vectors of cells (flat indices) of a cache, [cells, width]."""
        buffer = store.buffers[2 * self._layers]
        return buffer.index_select(0, cells.to(buffer.device))[:, 0]


class EagleModel(LanguageModel):
    """A draft of a few layers over `Fusion`.

    Args:
        hf_model: a causal LM of the target's width; its embedding is the target's.
        fusion: what joins tokens and vectors.
    """

    carries_state = True

    def __init__(self, hf_model: Any, fusion: Fusion, **rest: Any) -> None:
        super().__init__(hf_model, **rest)
        self._fusion = fusion.eval()
        prepack(self._fusion)
        self._tap = StateTap(hf_model)
        self._width: int = self.hf.config.get_text_config().hidden_size
        self._sources: WeakKeyDictionary[KVStore, tuple[EagleReader, KVStore]] = WeakKeyDictionary()
        self._carried: WeakKeyDictionary[KVStore, Tensor] = WeakKeyDictionary()

    def connect(self, target: LanguageModel, target_store: KVStore, store: KVStore) -> None:
        assert isinstance(target.reader, EagleReader), "the target of another draft"
        target.reader.keep_in(target_store)
        self._sources[store] = target.reader, target_store

    def forward(self, feed: Feed, store: KVStore, *, keep: int = 0) -> Tensor:
        logits = super().forward(feed, store, keep=keep)
        # the next token's vector, unless the target says better by then
        state = self._tap.take()[0]
        last = (
            state[0][to_device(feed.ends, state.device)][:, None] if feed.ragged else state[:, -1:]
        )
        self._carried[store] = self._fusion.carry(last)
        return logits

    def inputs(
        self, ids: Tensor, feed: Feed, store: KVStore, packing: Packing | None
    ) -> dict[str, Tensor]:
        before = self._before(feed, store)
        if packing is not None:
            before = packing.pack(before)
        embedded = self.hf.get_input_embeddings()(ids)
        return {"inputs_embeds": self._fusion(embedded, before)}

    def _before(self, feed: Feed, store: KVStore) -> Tensor:
        """The vectors of the tokens before the block's, [rows, tokens, hidden].

        Beyond the committed tokens that is the draft's own state; before, the target's,
        one column to the left, for both caches are laid out alike. The first token of a
        row has nothing before it, and a target that keeps no cache (dsd) nothing to say.
        """
        if feed.ahead:
            return self._carried[store]
        rows, tokens = feed.ids.shape
        if store not in self._sources:
            return torch.zeros(rows, tokens, self._width, dtype=self.dtype, device=self.device)
        left = feed.write.flat(rows, tokens, store.columns) - 1
        reader, target_store = self._sources[store]
        found = (
            reader.vectors(target_store, left.clamp(min=0)).view(rows, tokens, -1).to(self.device)
        )
        return found.masked_fill((feed.positions == 0).to(self.device)[:, :, None], 0)
