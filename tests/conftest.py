"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config.errors import UserError


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
