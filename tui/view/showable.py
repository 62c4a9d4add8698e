"""Model text made safe to show: the one function that every pane uses.

Nothing that a model or a prompt says may move the cursor, wipe the screen or
reverse the line. Control characters become the pictures that Unicode has for
them, invisible and direction-changing characters their code point in brackets.
The result is plain text; it is never read as markup.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from rich.cells import cell_len, get_character_cell_size

NEWLINE = "␊"
_INVISIBLE = {0x00AD, 0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, 0x2800}
_JOINERS = range(0xFE00, 0xFE10)


def _table_entry(code: int) -> str | None:
    """How this code point is shown; None: as it is."""
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if 0x80 <= code < 0xA0:
        return f"⟨U+{code:04X}⟩"
    character = chr(code)
    category = unicodedata.category(character)
    if code in _INVISIBLE or category in ("Cf", "Zl", "Zp", "Cs", "Co", "Cn"):
        return f"⟨U+{code:04X}⟩"
    if category == "Zs" and code != 0x20:
        return " "
    if category in ("Mn", "Me", "Mc") and get_character_cell_size(character) == 0:
        return None
    return None


@lru_cache(maxsize=4096)
def _shown(character: str) -> str:
    entry = _table_entry(ord(character))
    return character if entry is None else entry


def showable(text: str, *, newlines: bool = False) -> str:
    """The text with everything that could harm the screen replaced.

    Args:
        text: what a model, a tokenizer, a prompt or an error said.
        newlines: keep line feeds as they are (for text that is wrapped by lines).
    """
    if text.isascii() and text.isprintable():
        return text
    out: list[str] = []
    for character in text:
        if newlines and character == "\n":
            out.append("\n")
        elif ord(character) in _JOINERS:
            continue
        else:
            out.append(_shown(character))
    return "".join(out)


def fit(text: str, width: int, *, ellipsis: str = "…") -> str:
    """Cut or pad the text to exactly `width` terminal cells."""
    if width <= 0:
        return ""
    if text.isascii():
        length = len(text)
        if length <= width:
            return text + " " * (width - length)
        return text[: width - len(ellipsis)] + ellipsis if width > 1 else text[:1]
    length = cell_len(text)
    if length <= width:
        return text + " " * (width - length)
    room = width - cell_len(ellipsis)
    taken: list[str] = []
    used = 0
    for character in text:
        size = get_character_cell_size(character)
        if used + size > room:
            break
        taken.append(character)
        used += size
    return "".join(taken) + ellipsis + " " * (room - used)


def fit_left(text: str, width: int, *, ellipsis: str = "…") -> str:
    """Like `fit`, but what is cut off is the beginning."""
    if width <= 0:
        return ""
    length = cell_len(text)
    if length <= width:
        return text + " " * (width - length)
    room = width - cell_len(ellipsis)
    taken: list[str] = []
    used = 0
    for character in reversed(text):
        size = get_character_cell_size(character)
        if used + size > room:
            break
        taken.append(character)
        used += size
    return ellipsis + " " * (room - used) + "".join(reversed(taken))
