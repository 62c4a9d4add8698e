"""The log file: where tracebacks go, so that a terminal shows one line."""

from __future__ import annotations

import traceback
from datetime import datetime
from pathlib import Path

from engine.config.paths import log_dir


def log_file() -> Path:
    """The file of this program's tracebacks. Not created here."""
    return log_dir() / "batchspec-tui.app.log"


def log_exception(error: BaseException) -> Path | None:
    """Append the traceback; returns the file, or None where it cannot be written."""
    path = log_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"\n{datetime.now():%Y-%m-%d %H:%M:%S}\n")
            file.writelines(traceback.format_exception(error))
    except OSError:
        return None
    return path
