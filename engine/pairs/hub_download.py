"""A model from the hub into its cache, with progress by bytes.

The hub's client downloads in a thread of its own, and what lies on the disk is looked at
from time to time: so the progress is the same however the client fetches (it has several
ways, and bars of its own), and whoever waits can be interrupted at any moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import constants, hf_hub_download
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils.tqdm import disable_progress_bars

Progress = Callable[[str, float | None], None]

_LOOK = 0.2
"""Seconds between two looks at the disk."""


class DownloadError(Exception):
    """Why a file could not be had, in the hub's client's own words."""


class Wanted(NamedTuple):
    """A file of the repository, and its bytes."""

    name: str
    size: int


def download(
    repository: str, commit: str, revision: str, wanted: list[Wanted], progress: Progress
) -> None:
    """Fetch what is missing of these files. What has been fetched stays, whatever happens.

    Args:
        commit: all files are of this one.
        revision: the name under which the commit is to be found in the cache.

    Raises:
        DownloadError: a file cannot be had.
        Whatever `progress` raises; the download is then left to itself.
    """
    disable_progress_bars()
    total = sum(file.size for file in wanted)
    stage = f"downloading {repository}, {size_in_words(total)}"
    done = 0
    for file in wanted:
        _one(repository, commit, file, lambda bytes_: progress(stage, bytes_ / max(total, 1)), done)
        done += file.size
    # the last, so that a name in the cache always leads to a whole model
    _one(repository, revision, Wanted("config.json", 0), lambda bytes_: progress(stage, 1.0), done)


def _one(
    repository: str, revision: str, file: Wanted, report: Callable[[int], None], done: int
) -> None:
    failed: list[Exception] = []

    def fetch() -> None:
        try:
            hf_hub_download(
                repository, file.name, revision=revision, cache_dir=constants.HF_HUB_CACHE
            )
        except Exception as error:  # the hub's client raises a score of kinds
            failed.append(error)

    blobs = _blobs(repository)
    thread = threading.Thread(target=fetch, name="download", daemon=True)
    here = 0
    report(done)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK)
        here = max(here, min(_arrived(blobs), file.size))  # nothing is seen of a file at its end
        report(done + here)
    if failed:
        raise DownloadError(str(failed[0]) or type(failed[0]).__name__) from failed[0]


def _blobs(repository: str) -> Path:
    folder = repo_folder_name(repo_id=repository, repo_type="model")
    return Path(constants.HF_HUB_CACHE) / folder / "blobs"


def _arrived(blobs: Path) -> int:
    """Bytes of the file that is on its way."""
    sizes = []
    for file in blobs.glob("*.incomplete"):
        try:
            sizes.append(file.stat().st_size)
        except OSError:  # it has just arrived
            continue
    return max(sizes, default=0)


def size_in_words(count: int) -> str:
    """`13.5 GB`, `740 MB`."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
