"""Versions of what figures depend on."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

FIGURES = ("batchspec-tui", "torch", "transformers")
"""What the figures of a run depend on."""


def versions(packages: Iterable[str] = FIGURES) -> dict[str, str]:
    """Python's version, and that of each package."""
    return {"python": platform.python_version()} | {name: _version(name) for name in packages}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
