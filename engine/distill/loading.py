"""Loading a target for distillation."""

from __future__ import annotations

from typing import Any

import torch

from engine.config.errors import UserError
from engine.pairs import hub
from engine.pairs.components import load_model, load_tokenizer


def load_target(source: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, Any]:
    """The target, frozen, and its tokenizer.

    Raises:
        UserError: it cannot be had or loaded, or it comes without a tokenizer.
    """
    directory = hub.obtain(source, None, lambda stage, fraction: None)
    tokenizer = load_tokenizer(directory, source)
    if tokenizer is None:
        raise UserError(f"the target {source} comes without a tokenizer")
    model = load_model(directory, source, dtype, device)
    return model.requires_grad_(False), tokenizer
