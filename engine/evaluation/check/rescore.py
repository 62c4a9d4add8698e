"""Feeding a row to the target again, right or wrong on purpose, and seeing what it picks.

A *reading* is one way in which an engine may have fed a row: other tokens in front, a
token left out, positions shifted. The target then says what it would have chosen at each
of the places that are asked for. A claim about another engine rests on that, and on
nothing that was not tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from engine.models.causal_lm import LanguageModel
from engine.models.forward_input import Feed
from engine.models.kv_cache import KVStore, Write
from engine.models.lease import Lease

TOGETHER = 4096
"""Tokens of one forward at most."""


Mistake = Literal[
    "none", "shifted", "shifted_from", "no_kv", "bos_in_front", "first_token_missing",
    "padding_in_front", "padding_behind", "padding_behind_restarts", "padding_behind_predicts",
    "recorded_positions", "k_plus_1_positions", "rejected_tokens_kept",
]  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """One way to feed a row.

    Attributes:
        kind: of mistake: positions, cache, padding or prompt.
        mistake: which one it is (`engine.evaluation.check.hypotheses`).
        ids, positions: fed, from the first token on.
        places: at how many of the last tokens the target's choice is asked for.
        hidden: columns that no token attends to.
        numbers: that say more of the mistake.
    """

    kind: str
    mistake: Mistake
    ids: tuple[int, ...]
    positions: tuple[int, ...]
    places: int = 1
    hidden: tuple[int, ...] = ()
    numbers: dict[str, int] = field(default_factory=dict)


class Probe:
    """Reads rows with the target, each alone.

    Args:
        lease: of the pair that the target belongs to; taken for each forward.
    """

    def __init__(self, model: LanguageModel, lease: Lease) -> None:
        self._model = model
        self._lease = lease

    @torch.inference_mode()
    def logits(self, readings: Sequence[Reading]) -> list[Tensor]:
        """Logits at the last places of each reading, [places, vocabulary], float64."""
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, reading in enumerate(readings):
            groups[len(reading.ids), reading.places].append(index)
        found: dict[int, Tensor] = {}
        for (length, places), indices in groups.items():
            step = max(1, TOGETHER // length)
            for start in range(0, len(indices), step):
                part = indices[start : start + step]
                block = self._read([readings[index] for index in part], length, places)
                found |= dict(zip(part, block, strict=True))
        return [found[index] for index in range(len(readings))]

    def fits(self, reading: Reading) -> bool:
        """Whether the model can read that far, and the positions are its own."""
        return (
            reading.places <= len(reading.ids) <= self._model.context
            and min(reading.positions) >= 0
            and max(reading.positions) < self._model.context
        )

    def _read(self, readings: Sequence[Reading], length: int, places: int) -> Tensor:
        store = KVStore()
        store.clear(len(readings), length)
        mask = np.tile(np.tril(np.ones((length, length), bool)), (len(readings), 1, 1, 1))
        for place, reading in enumerate(readings):
            mask[place, :, :, list(reading.hidden)] = False
        feed = Feed(
            ids=torch.tensor([reading.ids for reading in readings]),
            positions=torch.tensor([reading.positions for reading in readings]),
            mask=torch.from_numpy(mask),
            write=Write(rows=len(readings), read=length, start=0),
        )
        with self._lease:
            return self._model.forward(feed, store, keep=places).double().cpu()
