"""From a model's directory to what the engine is made of: model, tokenizer, ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.config.errors import UserError, is_out_of_memory
from engine.pairs import hub
from engine.pairs.registry import PairSpec
from engine.text.chat import NO_THINKING, format_template, own_template
from engine.text.tokenizer import Tokenizer


def wrap(spec: PairSpec, hf: Any | None, config: Any, eos_ids: tuple[int, ...]) -> Tokenizer:
    """The pair's tokenizer, in the pair's chat format.

    Args:
        hf: transformers' own; None where the target comes without one.
        config: the target's.

    Raises:
        UserError: thinking is asked for, and the format has no switch for it.
    """
    config = config.get_text_config()
    bos = getattr(hf, "bos_token_id", None)
    written = spec.chat_format if hf is not None else ""
    if written and spec.thinking:
        raise UserError(NO_THINKING)
    return Tokenizer(
        hf,
        name=spec.target,
        eos_ids=eos_ids,
        pad_id=getattr(hf, "pad_token_id", None),
        bos_id=bos if bos is not None else _first(config.bos_token_id),
        vocabulary=None if hf is not None else config.vocab_size,
        template=format_template(hf, written)
        if written
        else own_template(hf, thinking=spec.thinking),
    )


def vocabulary_of(model: Any) -> int:
    """Columns of a model's head."""
    return int(model.config.get_text_config().vocab_size)


def eos_ids_of(model: Any, hf_tokenizer: Any | None) -> tuple[int, ...]:
    """Every end of the generation config; else of the config; else the tokenizer's."""
    for holder in (
        getattr(model, "generation_config", None), model.config.get_text_config(), hf_tokenizer
    ):  # fmt: skip
        value = getattr(holder, "eos_token_id", None)
        if value is not None:
            found = [value] if isinstance(value, int) else value
            return tuple(dict.fromkeys(int(token) for token in found))
    return ()


def _first(value: Any) -> int | None:
    if isinstance(value, list):
        return int(value[0]) if value else None
    return None if value is None else int(value)


def load_model(
    directory: Path,
    name: str,
    dtype: torch.dtype,
    device: torch.device,
    *,
    max_memory: dict[int, int] | None = None,
) -> Any:
    """A model of transformers', on its device.

    Args:
        name: for people.
        max_memory: bytes of weights for each GPU, if the model goes to several.

    Raises:
        UserError: it cannot be loaded, or does not fit.
    """
    options: dict[str, Any] = {}
    if max_memory is not None:
        options = {"device_map": "auto", "max_memory": max_memory}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(directory), local_files_only=True, dtype=dtype, **options
        ).eval()
        return model if max_memory is not None else model.to(device)
    except (OSError, ValueError, RuntimeError, KeyError, ImportError, MemoryError) as error:
        if is_out_of_memory(error):
            raise UserError(
                f"{name} does not fit into the memory of {device}: take a smaller model or "
                "dtype, or another --device"
            ) from error
        raise UserError(hub.cannot_load(name, error)) from error


def load_tokenizer(directory: Path, name: str) -> Any | None:
    """None where the model comes without one: token ids can then be given and shown."""
    if not hub.has_tokenizer(directory):
        return None
    try:
        return AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        raise UserError(hub.cannot_load(f"the tokenizer of {name}", error)) from error
