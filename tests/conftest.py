"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.config.errors import UserError

if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes, so one thread in each
    os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is imported

MOST_WORKERS = 8
"""Each takes up to a gigabyte of memory."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many processes `-n auto` starts."""
    return min(os.cpu_count() or 1, MOST_WORKERS)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for cache, configuration and logs."""
    place = tmp_path / "home"
    monkeypatch.setenv("BATCHSPEC_HOME", str(place))
    return place


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """The built-in target, fetched at need; the test is skipped where it cannot be had."""
    from engine.pairs import smollm2

    try:
        return smollm2.acquire(lambda stage, fraction: None)
    except UserError as error:
        pytest.skip(str(error))
