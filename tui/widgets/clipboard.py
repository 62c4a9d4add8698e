"""Copying to the clipboard, by the way that works."""

from __future__ import annotations

import asyncio
import threading

from textual.app import App

PATIENCE = 1.5
"""Seconds that a clipboard program may take."""


async def copy(app: App[object], text: str) -> str:
    """Copy a text. Returns by which way, in words."""
    if await _by_program(text):
        return "copied to the clipboard"
    app.copy_to_clipboard(text)
    return "sent to the terminal's clipboard (OSC 52), where it has one"


async def _by_program(text: str) -> bool:
    """Whether the system's own clipboard took it, in a thread that nobody waits for."""
    taken: list[bool] = []
    thread = threading.Thread(target=_paste, args=(text, taken), daemon=True)
    thread.start()
    for _ in range(int(PATIENCE / 0.02)):
        if not thread.is_alive():
            break
        await asyncio.sleep(0.02)
    return taken == [True]


def _paste(text: str, taken: list[bool]) -> None:
    try:
        import pyperclip

        pyperclip.copy(text)
    except Exception:  # no clipboard here, or no program that reaches it
        taken.append(False)
    else:
        taken.append(True)
