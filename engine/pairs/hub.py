"""Model directories and hub ids: where a name leads, found out quickly.

The hub's own client retries for half a minute when there is no network. Here one
short question decides: whether the hub answers, or what the cache holds must do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache
from huggingface_hub.utils.tqdm import disable_progress_bars

from engine.errors import UserError

Progress = Callable[[str, float | None], None]

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


def has_tokenizer(place: Place) -> bool:
    """Whether a directory holds a tokenizer; of a hub id it is taken for granted."""
    directory = Path(place.name)
    return not directory.is_dir() or any(
        (directory / name).is_file()
        for name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
    )


def cannot_load(path_or_id: str, error: Exception) -> str:
    """One line about a model that cannot be loaded, with the way out."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0].rstrip(".") if lines else type(error).__name__
    return (
        f"cannot load {path_or_id} ({reason}): give a local model directory or a hub id that "
        "can be reached, or use --model-pair smollm2 or toy"
    )


def is_here(path_or_id: str, revision: str | None = None) -> bool:
    """Whether a model can be loaded without the network (asks nothing of it)."""
    if (Path(path_or_id).expanduser() / "config.json").is_file():
        return True
    return isinstance(try_to_load_from_cache(path_or_id, "config.json", revision=revision), str)


def fetch(path_or_id: str, revision: str | None, progress: Progress) -> Path:
    """Download a model into the hub's cache, file by file; a directory is left as it is.

    Raises:
        UserError: it cannot be had.
    """
    place = locate(path_or_id, revision)
    if Path(place.name).is_dir():
        return Path(place.name)
    if place.local:
        raise UserError(f"cannot fetch {path_or_id}: the hub does not answer")
    disable_progress_bars()
    try:
        wanted = _needed(HfApi().list_repo_files(path_or_id, revision=revision))
        for index, name in enumerate(wanted):
            progress(f"fetching {path_or_id}: {name}", index / len(wanted))
            hf_hub_download(path_or_id, name, revision=revision)
        config = hf_hub_download(path_or_id, "config.json", revision=revision)
    except Exception as error:  # the hub's client raises a score of kinds
        raise UserError(cannot_load(path_or_id, error)) from error
    return Path(config).parent


def _needed(names: list[str]) -> list[str]:
    """The files that loading reads: safetensors where there are any, else the old kind."""
    weights = ".safetensors" if any(name.endswith(".safetensors") for name in names) else ".bin"
    kinds = (weights, f"{weights}.index.json", ".json", ".model", ".txt", ".jinja")
    return sorted(name for name in names if "/" not in name and name.endswith(kinds))
