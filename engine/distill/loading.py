"""Loading a target for distillation."""

from __future__ import annotations

from typing import Any

import torch

from engine.config.errors import UserError


def load_target(source: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, Any]:
    """The target, frozen, and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"the target {source} cannot be loaded: {first}") from None
    model.to(device).eval()
    return model.requires_grad_(False), tokenizer
