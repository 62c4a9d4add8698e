"""The pane that differs by method: raggedness, the pool and its groups, or the slots."""

from __future__ import annotations

from collections import Counter

from engine.config.counted import counted
from tui.view.lines import Line, crop, spread
from tui.view.panes.cost import EIGHTHS
from tui.view.state.frame import Frame

TITLES = {
    "autoregressive": "one token a step",
    "exspec": "pool by length",
    "slotspec": "slots",
}


def method_title(frame: Frame) -> str:
    return TITLES.get(frame.method, "raggedness")


def method_note(frame: Frame) -> str:
    """What the pane's figures count, for its heading."""
    return "" if frame.method in TITLES else " accepted per row "


def method_lines(frame: Frame, width: int, height: int) -> list[Line]:
    """The lines of the pane for the frame's method."""
    if width < 8 or height < 1:
        return []
    method = frame.method
    if method == "exspec":
        lines = _pool(frame, width, height)
    elif method == "slotspec":
        lines = _slots(frame, width, height)
    elif method == "autoregressive":
        lines = _progress(frame, width, height)
    else:
        lines = _ragged(frame, width, height)
    return lines[:height]


def _ragged(frame: Frame, width: int, height: int) -> list[Line]:
    """How unevenly the rows accept, and what the padding for that amounts to."""
    timeline, number = frame.timeline, frame.cursor.round
    histogram = timeline.histogram_at(number)
    record = frame.record
    total = sum(histogram) or 1
    lines: list[Line] = []
    room = max(1, height - 2)
    counts = list(enumerate(histogram))
    if len(counts) > room:
        counts = counts[:room]
    bar_room = max(4, width - 12)
    peak = max(histogram, default=0) or 1
    now = Counter(row.accepted for row in record.rows) if record else Counter()
    for accepted, count in counts:
        lines.append(
            [
                (f"{accepted:>2} ", "accepted" if now[accepted] else "dim"),
                *_bar(count / peak, bar_room, "accepted" if now[accepted] else "quiet"),
                (f" {100 * count / total:>3.0f} %", "dim"),
                (" ◂" if now[accepted] else "  ", "accepted"),
            ]
        )
    if not lines:
        lines.append([("accepted tokens per row and round", "dim")])
    lines.append(_padding(frame, width))
    lines.append(_spark(frame, width))
    return lines


def _progress(frame: Frame, width: int, height: int) -> list[Line]:
    """How much of its budget each row of the batch has used."""
    record = frame.record
    if record is None:
        return [[("one token a row and step", "dim")]]
    budget = frame.setting("max_new_tokens", 0)
    most = budget if isinstance(budget, int) and budget > 0 else 1
    lines: list[Line] = []
    for row in record.rows[:height]:
        track = frame.timeline.tracks[row.row]
        made = row.content - track.prompt_length
        bar = _bar(min(1.0, made / most), max(4, width - 18), "accepted")
        lines.append(
            [(f"row {row.row:<3} ", "text"), *bar, (f" {made:>4}/{most}".ljust(10), "dim")]
        )
    return lines


def _bar(share: float, width: int, style: str) -> Line:
    full, rest = divmod(round(share * width * 2), 2)
    text = "━" * full + ("╸" if rest else "")
    return [(text.ljust(width), style)]


def _padding(frame: Frame, width: int) -> Line:
    record = frame.record
    if record is None:
        return [("padding –", "dim")]
    if not any(row.kept or row.padding for row in record.rows):
        return [("padding –  rows moved –", "dim")]
    cells = sum(row.padding + row.content for row in record.rows) or 1
    pads = sum(row.padding for row in record.rows)
    moved = sum(1 for row in record.rows if row.delta)
    return spread(
        [("padding ", "dim"), (f"{100 * pads / cells:.0f} %", "text")],
        [("rows moved ", "dim"), (f"{moved}/{len(record.rows)}", "realign")],
        width,
        (" ", "text"),
    )


def _spark(frame: Frame, width: int) -> Line:
    """The spread of the rows' acceptances, round by round."""
    number = frame.cursor.round
    room = max(4, width - 10)
    spreads = frame.timeline.spreads[max(0, number - room) : number]
    top = max(spreads, default=0) or 1
    text = "".join(EIGHTHS[1 + round(7 * value / top)] for value in spreads)
    return [("spread   ", "dim"), (text.rjust(room), "realign")]


def _pool(frame: Frame, width: int, height: int) -> list[Line]:
    """The rows in view by their length; those of this round stand out."""
    record = frame.record
    if record is None:
        return [[("the pool fills with the first round", "dim")]]
    batch = {row.row for row in record.rows}
    before = {row.row: row.before for row in record.rows}
    lengths: dict[int, list[int]] = {}
    for row, length in [*before.items(), *((r.row, r.content) for r in record.pool)]:
        lengths.setdefault(length, []).append(row)
    waits = [row.waited for row in record.pool]
    lines: list[Line] = []
    room = max(1, height - 3)
    order = sorted(lengths, key=lambda length: (-len(lengths[length]), length))
    shown = sorted(order[:room])
    unit = max(1, min(3, (width - 8) // max(len(rows) for rows in lengths.values())))
    for length in shown:
        line: Line = [(f"{length:>4} ", "dim")]
        for row in lengths[length]:
            chosen = row in batch
            line.append((("█" if chosen else "▒") * unit, "accepted" if chosen else "quiet"))
            line.append((" ", "text"))
        if any(row in batch for row in lengths[length]):
            line.append(("◂", "accepted"))
        lines.append(crop(line, width))
    if len(order) > len(shown):
        lines.append([(f"     and {counted(len(order) - len(shown), 'more length')}", "dim")])
    word = "group of one length" if record.kind == "grouped" else "fallback: padded"
    style = "good" if record.kind == "grouped" else "realign"
    lines.append(
        spread(
            [(word, style)],
            [(f"waited at most {max(waits, default=0)}", "dim")],
            width,
            (" ", "text"),
        )
    )
    lines.append(_kinds(frame, width))
    return lines


def _kinds(frame: Frame, width: int) -> Line:
    """The last rounds: a group, or the fallback."""
    number = frame.cursor.round
    kinds = frame.timeline.kinds[max(0, number - (width - 14)) : number]
    line: Line = [(f"grouped {100 * kinds.count('grouped') / max(1, len(kinds)):>3.0f} % ", "dim")]
    for kind in kinds:
        group = kind == "grouped"
        line.append(("■" if group else "□", "accepted" if group else "realign"))
    return crop(line, width)


def _slots(frame: Frame, width: int, height: int) -> list[Line]:
    """Each slot: its row, its valid cells, its stale tail."""
    record = frame.record
    if record is None:
        return [[("slots fill with the first round", "dim")]]
    longest = max((sum(span.length for span in row.kept) for row in record.rows), default=1)
    room = max(4, width - 13)
    lines: list[Line] = []
    for row in record.rows[: max(1, height - 1)]:
        stale = sum(span.length for span in row.kept if span.kind in ("stale", "ghost"))
        full = round(row.content / longest * room)
        tail = min(room - full, max(1 if stale else 0, round(stale / longest * room)))
        lines.append(
            [
                (f"{row.place:>2} ", "dim"),
                (f"row {row.row:<3}", "text"),
                ("━" * full, "accepted" if row.row in record.admitted else "committed"),
                ("╌" * tail, "stale"),
            ]
        )
    joined = f"joined {len(record.admitted)}" if record.admitted else ""
    left = f"left {len(record.left)}" if record.left else ""
    words = " · ".join(word for word in (joined, left, f"queued {record.queued}") if word)
    lines.append([(words, "dim")])
    return lines
