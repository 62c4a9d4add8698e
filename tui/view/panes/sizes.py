"""What a run is set to, at the cursor: method, K, B, W, temperature; and what comes next."""

from __future__ import annotations

from engine.records.schema import RoundRecord
from tui.view.lines import Line
from tui.view.sentences import choice_words
from tui.view.state.completed import UNKNOWN, draft_tokens
from tui.view.state.frame import Frame

ARROW = "→"
"""Between a setting and what it is from the next round on."""


def method_piece(frame: Frame) -> tuple[str, str]:
    """The method's name; while another one waits for the next round, that too."""
    now, then = frame.method, frame.timeline.method_at(_next(frame))
    return (now.upper() if now == then else f"{now.upper()} {ARROW} {then.upper()}", "method")


def size_pieces(frame: Frame) -> Line:
    """K as the round had it, with `auto` where it is chosen anew each round; B, W and T."""
    sizes: list[tuple[str, object]] = [
        ("K", _draft_tokens(frame)),
        ("B", _value(frame, "batch_size")),
    ]
    if "exspec" in (frame.method, frame.timeline.method_at(_next(frame))):
        sizes.append(("W", _value(frame, "window")))
    sizes.append(("T", _value(frame, "temperature")))
    line: Line = []
    for letter, value in sizes:
        if value not in (None, 0.0) or (letter != "T" and value == 0):
            line += [(f"{letter} ", "dim"), (f"{value}  ", "text")]
    return line


def _next(frame: Frame) -> int:
    """The next round where that is still to be made, else the one that is looked at."""
    number = frame.cursor.round
    return number + 1 if number == frame.timeline.last else max(1, number)


def _value(frame: Frame, name: str) -> object:
    now = frame.setting(name)
    then = frame.timeline.setting_at(_next(frame), name)
    return now if now == then else f"{now}{ARROW}{then}"


def _draft_tokens(frame: Frame) -> object:
    """The K of the round, which `auto` chose or the method had no use for."""
    record = frame.record
    setting = frame.setting("draft_tokens")
    then = frame.timeline.setting_at(_next(frame), "draft_tokens")
    if record is None:
        return setting if setting == then else f"{setting}{ARROW}{then}"
    if then != setting:
        return f"{_of_round(record)}{ARROW}{then}"
    return f"{_of_round(record)} auto" if setting == "auto" else _of_round(record)


def _of_round(record: RoundRecord) -> object:
    count = draft_tokens(record)
    return UNKNOWN if count is None else count


def reason_of(frame: Frame) -> str:
    """Why the round had this K, where it was chosen; else nothing."""
    record = frame.record
    choice = record.draft_choice if record is not None else None
    return "" if choice is None else choice_words(choice)
