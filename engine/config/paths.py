"""Where files are kept: cache, configuration, logs.

`BATCHSPEC_HOME`, if set, is one directory for all three; otherwise the
platform's own places are used.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

APP = "batchspec-tui"
HOME_VARIABLE = "BATCHSPEC_HOME"


def _home() -> Path | None:
    value = os.environ.get(HOME_VARIABLE, "").strip()
    return Path(value).expanduser().absolute() if value else None


def cache_dir() -> Path:
    """Converted weights and downloads: may be deleted at any time. Not created here."""
    home = _home()
    return home / "cache" if home else Path(platformdirs.user_cache_dir(APP, appauthor=False))


def config_dir() -> Path:
    """The user's own pairs, themes and settings. Not created here."""
    home = _home()
    return home / "config" if home else Path(platformdirs.user_config_dir(APP, appauthor=False))


def log_dir() -> Path:
    """Log files with tracebacks. Not created here."""
    home = _home()
    return home / "logs" if home else Path(platformdirs.user_log_dir(APP, appauthor=False))
