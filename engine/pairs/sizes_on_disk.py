"""How much memory a model's weights will take, from what lies on the disk, unread.

A safetensors file begins with the shapes of all its tensors; of the older kind the size
is known. The configuration says the rest.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from engine.config.errors import UserError
from engine.models.draft_format import FACTS, WEIGHTS
from engine.models.memory_estimate import Sizes, sizes_of_config
from engine.models.prepack import LARGEST_BYTES, SMALLEST, packs
from engine.pairs.hub import cannot_load, weight_files

_TABLES = ("embed", "wte", "wpe")
"""Parts of the names of tables, which are looked up and not multiplied by."""


def config_of(directory: Path, name: str) -> Any:
    """A model's configuration.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return AutoConfig.from_pretrained(str(directory), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(cannot_load(name, error)) from error


def sizes_of_directory(
    directory: Path, config: Any, dtype: torch.dtype, device: torch.device
) -> Sizes:
    """The sizes of a model in a directory, if it is loaded so.

    Args:
        config: the directory's.
    """
    text = config.get_text_config()
    size = dtype.itemsize
    files = weight_files(directory)
    if not all(file.suffix == ".safetensors" for file in files):
        stored = getattr(config, "dtype", None) or torch.float32
        numbers = sum(file.stat().st_size for file in files) // stored.itemsize
        linear = numbers - text.vocab_size * text.hidden_size
    else:
        shapes = {name: shape for file in files for name, shape in shapes_in(file).items()}
        numbers = sum(math.prod(shape) for shape in shapes.values())
        linear = sum(math.prod(shape) for name, shape in shapes.items() if is_linear(name, shape))
        if config.tie_word_embeddings:
            head = text.vocab_size * text.hidden_size
            linear += head
            numbers -= head if "lm_head.weight" in shapes else 0
    weights = numbers * size
    if packs(dtype, device) and weights <= LARGEST_BYTES:
        weights += linear * size
    return sizes_of_config(text, size, weights)


def sizes_of_compact(
    directory: Path, target: Sizes, dtype: torch.dtype, device: torch.device
) -> Sizes:
    """The sizes of a draft that stands on its target's tables (`engine.models.draft_format`)."""
    facts = json.loads((directory / FACTS).read_text(encoding="utf-8"))
    columns = int(facts.get("hot_vocab", target.columns))
    shapes = shapes_in(directory / WEIGHTS)
    numbers = sum(math.prod(shape) for shape in shapes.values()) + columns * target.hidden
    copies = 2 if packs(dtype, device) else 1
    return replace(
        target,
        layers=len(facts["layers"]),
        columns=columns,
        weights=copies * numbers * target.itemsize,
    )


def shapes_in(file: Path) -> dict[str, list[int]]:
    """The shape of every tensor in a safetensors file.

    Raises:
        UserError: it is none.
    """
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > file.stat().st_size:
                raise ValueError("it is no safetensors file, or cut off")
            header = json.loads(stream.read(length))
        return {
            name: list(facts["shape"]) for name, facts in header.items() if name != "__metadata__"
        }
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise UserError(cannot_load(str(file), error)) from error


def is_linear(name: str, shape: list[int]) -> bool:
    """Whether these are the weights of a linear layer that is worth packing."""
    return (
        len(shape) == 2
        and math.prod(shape) >= SMALLEST
        and not any(part in name for part in _TABLES)
    )
