"""What the draft learns from: the target's hidden states at each token, kept in a file.

It is the final state, and for an EAGLE-style draft those of some layers beside it.

The frozen shared head turns a state into the exact distribution at a small price, so the target
runs once over each sequence however long the training is. The file is memory-mapped: it takes
``2 × hidden size`` bytes a token and state on the disk, and next to nothing in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.config.replace_file import replace_with
from engine.distill.tokens import TokenData
from engine.models.eagle import StateTap


def pad_rows(data: TokenData, indices: list[int], limit: int) -> tuple[Tensor, Tensor]:
    """Right-padded ids and the mask of what is real: a causal model never sees the padding."""
    rows = [data.sequence(i)[:limit] for i in indices]
    width = max(len(row) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    real = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        real[i, : len(row)] = True
    return ids, real


def by_length(data: TokenData, indices: list[int], budget: int, limit: int) -> Iterator[list[int]]:
    """Groups of similar length whose padded size stays below ``budget`` tokens."""
    lengths = data.lengths().clamp(max=limit).tolist()
    group: list[int] = []
    for i in sorted(indices, key=lambda i: -lengths[i]):
        if group and lengths[group[0]] * (len(group) + 1) > budget:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def hidden_states(model: Any, ids: Tensor) -> Tensor:
    """The final normed hidden state at each token of right-padded rows."""
    device = model.model.embed_tokens.weight.device
    positions = torch.arange(ids.shape[1], device=device)[None].expand(ids.shape[0], -1)
    output = model.model(input_ids=ids.to(device), position_ids=positions, use_cache=False)
    state: Tensor = output.last_hidden_state
    return state


class Labels:
    """The stored states of a set: ``states[offsets[i] + t]`` is of token ``t`` of row ``i``.

    Args:
        reads: layers whose outputs are stored behind the final state.
    """

    def __init__(
        self, directory: Path, data: TokenData, hidden: int, limit: int, reads: Sequence[int] = ()
    ) -> None:
        self.data, self.limit, self.reads = data, limit, tuple(reads)
        directory.mkdir(parents=True, exist_ok=True)
        stem = "-".join(map(str, ["labels", data.key(), limit, *reads]))
        self.path, self.mark = directory / f"{stem}.bf16", directory / f"{stem}.json"
        width = hidden * (1 + len(self.reads))
        size = max(1, len(data.tokens)) * width
        flat = torch.from_file(str(self.path), shared=True, size=size, dtype=torch.bfloat16)
        self.states = flat.view(-1, width)

    def done(self) -> int:
        """How many groups of sequences are labelled already."""
        return int(json.loads(self.mark.read_text())["groups"]) if self.mark.exists() else 0

    @torch.inference_mode()
    def fill(
        self,
        target: Any,
        *,
        budget: int = 4096,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        """Run the target over what is not labelled yet."""
        groups = list(by_length(self.data, list(range(len(self.data))), budget, self.limit))
        with closing(StateTap(target, self.reads)) as tap:
            for place in range(self.done(), len(groups)):
                if stop is not None and stop():
                    break
                group = groups[place]
                ids, real = pad_rows(self.data, group, self.limit)
                hidden_states(target, ids)
                states = torch.cat(tap.take(), dim=-1).to("cpu", torch.bfloat16)
                for row, i in enumerate(group):
                    start, length = int(self.data.offsets[i]), int(real[row].sum())
                    self.states[start : start + length] = states[row, :length]
                text = json.dumps({"groups": place + 1, "of": len(groups), "budget": budget})
                replace_with(self.mark, lambda path, text=text: path.write_text(text))  # type: ignore[misc]
                if progress is not None:
                    progress(place + 1, len(groups))

    def rows(self, indices: list[int], width: int) -> Tensor:
        """Padded states ``[rows, width, hidden]`` of the sequences ``indices``."""
        out = torch.zeros(len(indices), width, self.states.shape[1], dtype=torch.bfloat16)
        for row, i in enumerate(indices):
            start, end = int(self.data.offsets[i]), int(self.data.offsets[i + 1])
            length = min(end - start, width)
            out[row, :length] = self.states[start : start + length]
        return out
