"""The process while the app has the terminal: stray output, crashes and signals.

The screen is drawn on file descriptor 2. Native code writes there too. So the
terminal moves to a descriptor of its own, and 2 becomes the log file.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path


@contextlib.contextmanager
def quiet_terminal(log: Path) -> Iterator[None]:
    """Send stray writes and native crash reports to `log` while the app runs."""
    with _opened(log) as file:
        screen = os.dup(2 if os.isatty(2) else 1)
        saved, saved_stderr = os.dup(2), sys.__stderr__
        previous = sys.stderr
        switch = sys.getswitchinterval()
        faults = faulthandler.is_enabled()
        sys.__stderr__ = open(  # type: ignore[misc]  # noqa: SIM115
            screen, "w", encoding="utf-8", errors="replace", closefd=False
        )
        os.dup2(file.fileno(), 2)
        sys.setswitchinterval(0.001)
        faulthandler.enable(file)
        try:
            yield
        finally:
            faulthandler.disable()
            if faults:
                faulthandler.enable()
            sys.setswitchinterval(switch)
            with contextlib.suppress(Exception):
                sys.__stderr__.flush()
            os.dup2(saved, 2)
            os.close(saved)
            sys.__stderr__ = saved_stderr  # type: ignore[misc]
            sys.stderr = previous
            os.close(screen)


def _opened(log: Path) -> FileIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return FileIO(log, "ab")
    except OSError:
        return FileIO(os.devnull, "ab")


def on_terminate(leave: Callable[[], None]) -> None:
    """Call `leave` when the process is asked to end, so that the terminal is given back."""
    import asyncio

    loop = asyncio.get_running_loop()
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is None:
            continue
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, leave)
