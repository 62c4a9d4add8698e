"""Checkpoints that a kill cannot spoil: written beside the old one, then renamed over it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engine.config.errors import UserError

NAME = "checkpoint.pt"


def replace_with(path: Path, write: Callable[[Path], Any]) -> None:
    """Let ``write`` fill a file beside ``path``, then rename it: never half a file at ``path``."""
    temporary = path.with_name(path.name + ".tmp")
    write(temporary)
    with open(temporary, "rb") as handle:
        os.fsync(handle.fileno())
    temporary.chmod(0o644)  # some writers make files that their owner alone may read
    os.replace(temporary, path)


def save_checkpoint(directory: Path, state: dict[str, Any]) -> None:
    replace_with(directory / NAME, lambda path: torch.save(state, path))


def load_checkpoint(directory: Path) -> dict[str, Any] | None:
    """The last checkpoint, or None where there is none."""
    path = directory / NAME
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"the checkpoint {path} cannot be read: {error}") from error
    return state
