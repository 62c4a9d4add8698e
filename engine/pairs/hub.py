"""Model directories and hub ids: from a name to a directory on this machine, quickly.

A directory is taken as it is, and so is what the hub's cache holds: only what is missing
is asked of the network (`newest` asks anyway). The hub's own client retries for half a
minute when there is no network; here one short question decides.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, try_to_load_from_cache

from engine.config.errors import UserError
from engine.pairs.hub_download import DownloadError, Wanted, download
from engine.pairs.registry import PairSpec

Progress = Callable[[str, float | None], None]

_PATIENCE = 1.7
"""Seconds for the hub's first answer."""

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


def obtain(
    path_or_id: str,
    revision: str | None = None,
    progress: Progress = lambda stage, fraction: None,
    *,
    newest: bool = False,
) -> Path:
    """The directory of a model: the one that is named, the hub's cache, or a download into it.

    Args:
        revision: branch, tag or commit of a hub id; None: the main one.
        progress: called with what is going on; an exception that it raises cancels.
        newest: ask the hub for a newer state of what the cache holds.

    Raises:
        UserError: no such directory, no model in it, or a hub id that is neither in the
            hub's cache nor to be had from the hub.
    """
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    directory = _directory(path_or_id)
    if directory is not None:
        return directory
    cached = _snapshot(path_or_id, revision)
    if cached is not None and not newest and is_complete(cached):
        return cached
    progress(f"asking the hub for {path_or_id}", None)
    try:
        found = _ask(path_or_id, revision)
    except Exception as error:  # whatever is wrong with network or hub: the cache decides
        if cached is not None and not newest and has_weights(cached):
            return cached
        raise UserError(cannot_load(path_or_id, error)) from error
    return _fetch(path_or_id, revision, found, progress)


def obtain_models(
    spec: PairSpec, progress: Progress = lambda stage, fraction: None, *, newest: bool = False
) -> list[Path]:
    """The directories of a pair's models, fetched at need; what is on the disk is not checked.

    It needs no torch: a name that leads nowhere is found out before any is imported.

    Raises:
        UserError: see `obtain`.
    """
    return [
        Path(name) if Path(name).is_dir() else obtain(name, revision, progress, newest=newest)
        for name, revision in spec.models
    ]


def _ask(path_or_id: str, revision: str | None) -> Any:
    """What the hub knows of a model. Its client may try again and again: it is not waited for."""
    answers: list[Any] = []
    failures: list[Exception] = []

    def ask() -> None:
        try:
            answers.append(
                HfApi().model_info(
                    path_or_id, revision=revision, timeout=_PATIENCE, files_metadata=True
                )
            )
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=ask, name="hub", daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    if answers:
        return answers[0]
    raise failures[0] if failures else TimeoutError("the hub does not answer")


def _fetch(path_or_id: str, revision: str | None, found: Any, progress: Progress) -> Path:
    sizes = {file.rfilename: int(file.size or 0) for file in found.siblings or ()}
    names = needed(sizes)
    if "config.json" not in names:
        raise UserError(f"{path_or_id}: no model in it (there is no config.json)")
    wanted = [Wanted(name, sizes[name]) for name in names]
    try:
        download(path_or_id, found.sha, revision or constants.DEFAULT_REVISION, wanted, progress)
    except DownloadError as error:
        raise UserError(
            f"{cannot_load(path_or_id, error)}; what was fetched is kept, so try again"
        ) from error
    snapshot = _snapshot(path_or_id, found.sha)
    if snapshot is None:
        raise UserError(cannot_load(path_or_id, OSError("the download is not in the cache")))
    return snapshot


def is_here(path_or_id: str, revision: str | None = None) -> bool:
    """Whether a model can be loaded without the network (asks nothing of it)."""
    if (Path(path_or_id).expanduser() / "config.json").is_file():
        return True
    cached = _snapshot(path_or_id, revision)
    return cached is not None and has_weights(cached)


def has_tokenizer(directory: Path) -> bool:
    """Whether a directory holds a tokenizer."""
    return any((directory / name).is_file() for name in _TOKENIZER)


def has_weights(directory: Path) -> bool:
    """Whether all the weights are there, every shard that the index names."""
    return bool(weight_files(directory))


def is_complete(directory: Path) -> bool:
    """Whether nothing seems to be missing of a model in the hub's cache."""
    return has_weights(directory) and has_tokenizer(directory)


def weight_files(directory: Path) -> list[Path]:
    """The files that hold a model's weights; none where some are missing."""
    for name in _INDEXES:
        index = directory / name
        if index.is_file():
            try:
                shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            except (OSError, ValueError, KeyError):
                return []
            files = [directory / shard for shard in sorted(shards)]
            if all(file.is_file() for file in files):
                return files
    single = [directory / name for name in _WEIGHTS if (directory / name).is_file()]
    return single[:1]


def needed(names: Iterable[str]) -> list[str]:
    """The files that loading reads, the large ones last: safetensors where there are any,
    else the old kind."""
    names = [name for name in names if "/" not in name]
    weights = ".safetensors" if any(name.endswith(".safetensors") for name in names) else ".bin"
    kinds = (weights, f"{weights}.index.json", ".json", ".model", ".txt", ".jinja")
    other = ".bin.index.json" if weights == ".safetensors" else ".safetensors.index.json"
    chosen = [name for name in names if name.endswith(kinds) and not name.endswith(other)]
    return sorted(chosen, key=lambda name: (name.endswith(weights), name))


def cannot_load(path_or_id: str, error: Exception) -> str:
    """One line about a model that cannot be loaded, with the way out."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0].rstrip(".") if lines else type(error).__name__
    return (
        f"cannot load {path_or_id} ({reason}): give a local model directory or a hub id that "
        "can be reached, or use --model-pair smollm2 or toy"
    )


def _directory(path_or_id: str) -> Path | None:
    """The local directory that is meant; None for a hub id."""
    path = Path(path_or_id).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(f"{path_or_id}: no model in it (there is no config.json)")
        return path.absolute()
    if path_or_id.startswith((".", "/", "~")) or path_or_id.count("/") > 1 or path.exists():
        raise UserError(f"{path_or_id}: no such model directory")
    return None


def _snapshot(path_or_id: str, revision: str | None) -> Path | None:
    """Where the hub's cache holds a model, whole or in part."""
    try:
        found = try_to_load_from_cache(
            path_or_id, "config.json", revision=revision, cache_dir=constants.HF_HUB_CACHE
        )
    except ValueError:  # no name that the hub could have
        return None
    return Path(found).parent if isinstance(found, str) else None
