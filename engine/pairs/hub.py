"""Model directories and hub ids: where a name leads, found out quickly.

The hub's own client retries for half a minute when there is no network. Here one
short question decides: whether the hub answers, or what the cache holds must do.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import HfApi, try_to_load_from_cache

from engine.errors import UserError

_PATIENCE = 2.5
"""Seconds for the hub's first answer."""


class Place(NamedTuple):
    """Where a model is loaded from."""

    name: str
    """An absolute directory, or a hub id."""
    local: bool
    """Nothing may be asked of the network."""


@lru_cache(maxsize=32)
def locate(path_or_id: str, revision: str | None = None) -> Place:
    """Where `path_or_id` leads.

    Raises:
        UserError: no such directory, no model in it, or a hub id that is neither in the
            hub's cache nor to be had from the hub.
    """
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    path = Path(path_or_id).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(f"{path_or_id}: no model in it (there is no config.json)")
        return Place(str(path.absolute()), local=True)
    if path_or_id.startswith((".", "/", "~")) or path_or_id.count("/") > 1 or path.exists():
        raise UserError(f"{path_or_id}: no such model directory")
    try:
        HfApi().model_info(path_or_id, revision=revision, timeout=_PATIENCE)
    except Exception as error:  # whatever is wrong with network or hub: the cache decides
        cached = try_to_load_from_cache(path_or_id, "config.json", revision=revision)
        if not isinstance(cached, str):
            raise UserError(cannot_load(path_or_id, error)) from error
        return Place(path_or_id, local=True)
    return Place(path_or_id, local=False)


def cannot_load(path_or_id: str, error: Exception) -> str:
    """One line about a model that cannot be loaded, with the way out."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0].rstrip(".") if lines else type(error).__name__
    return (
        f"cannot load {path_or_id} ({reason}): give a local model directory or a hub id that "
        "can be reached, or use --model-pair smollm2 or toy"
    )
