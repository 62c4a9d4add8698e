"""Memory: what a run will need, whether there is as much, and what it took."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import psutil
import torch

from engine.errors import UserError
from engine.model import LanguageModel


@dataclass(frozen=True)
class Estimate:
    """Bytes that a run needs at most on one device, beside what is loaded already.

    Attributes:
        kv: K and V of all rows, twice: they are moved from one buffer to another.
        logits: of the largest block.
    """

    kv: int
    logits: int

    @property
    def total(self) -> int:
        return self.kv + self.logits


def estimate(models: Seq[LanguageModel], *, rows: int, columns: int, tokens: int) -> Estimate:
    """What `rows` rows of `columns` tokens need in blocks of `tokens` tokens a row."""
    cells = rows * (columns + tokens)
    kv = sum(2 * cells * model.kv_bytes_per_token for model in models)
    logits = max(rows * tokens * model.vocabulary * model.dtype.itemsize for model in models)
    return Estimate(kv, logits)


def require_memory(
    models: Seq[LanguageModel], *, rows: int, columns: int, tokens: int, free: int | None = None
) -> None:
    """Refuse a run that cannot fit, before it begins.

    Args:
        free: bytes; None: what the models' devices have now.

    Raises:
        UserError: with the estimate, and the settings to lower.
    """
    for device in dict.fromkeys(model.device for model in models):
        here = [model for model in models if model.device == device]
        needed = estimate(here, rows=rows, columns=columns, tokens=tokens)
        there = free_bytes(device) if free is None else free
        if needed.total > there:
            raise UserError(
                f"this run needs about {needed.total / 1e9:.1f} GB on {device} beside the weights "
                f"({needed.kv / 1e9:.1f} GB of K/V for {rows} rows of {columns} tokens, "
                f"{needed.logits / 1e9:.1f} GB of logits) and {there / 1e9:.1f} GB are free: "
                "lower --batch-size or --max-new-tokens"
            )


def free_bytes(device: torch.device) -> int:
    """Memory that is still to be had on a device."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    return int(psutil.virtual_memory().available)


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory in use so far: the allocator's peak on CUDA, else the process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
