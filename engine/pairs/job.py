"""What is to be loaded, where to, and what for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.config.settings import Settings
from engine.pairs.registry import PairSpec
from engine.text.prompts import PromptEntry

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Workload:
    """What a pair is loaded for: known beforehand, it tells how much memory that takes.

    Attributes:
        lanes: the settings of each of the runs that are there at the same time.
        chat: as for `encode_prompts`.
    """

    lanes: tuple[Settings, ...]
    prompts: tuple[PromptEntry, ...]
    chat: bool | None = None


@dataclass(frozen=True)
class Job:
    """One loading of a pair.

    Attributes:
        device, beside: of the target, and of the draft.
    """

    spec: PairSpec
    device: torch.device
    beside: torch.device
    dtype: torch.dtype
    workload: Workload | None
    progress: Progress
