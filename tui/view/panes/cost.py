"""What the rounds cost: stacked bars by phase, and the shares in figures."""

from __future__ import annotations

from engine.records.schema import Phases
from tui.view.lines import Line, crop, spread, wrap
from tui.view.panes.sizes import reason_of
from tui.view.state.frame import Frame

STACK = ("verify", "draft", "accept", "realign", "schedule", "prefill")
"""From the bottom of a bar to its top."""

EIGHTHS = " ▁▂▃▄▅▆▇█"
RECENT = 20
TALLEST = 12
"""Lines of the chart at most: a taller one says no more."""


def cost_lines(frame: Frame, width: int, height: int) -> list[Line]:
    """The chart of the last rounds, and the legend."""
    if width < 8 or height < 1:
        return []
    if frame.record is not None and not frame.timeline.seconds_at(frame.cursor.round):
        return [[("no costs were recorded", "dim")]]
    reason = wrap([(reason_of(frame), "dim")], width)[:2] if reason_of(frame) else []
    if reason and height >= 6 + len(reason):
        return [*_costs(frame, width, height - len(reason)), *reason]
    return _costs(frame, width, height)


def _costs(frame: Frame, width: int, height: int) -> list[Line]:
    timeline, number = frame.timeline, frame.cursor.round
    begin = max(0, number - RECENT)
    recent = Phases()
    for seconds in timeline.costs[begin:number]:
        recent = recent + seconds
    names = [name for name in STACK if name not in ("schedule", "prefill")]
    legend = [_legend(recent, names, number - begin, width), *_shares(frame, width)]
    beside = width >= 34 and height >= 5
    if beside:
        table = _table(recent, number - begin)
        chart_width = width - 20
        tall = min(height, TALLEST)
        chart = [*paint_chart(frame, chart_width, tall - 1), _axis(frame, chart_width)]
        chart += [[] for _ in range(height - tall)]
        out = []
        tail = _realign_lines(frame)
        rows = [*table, *tail][-height:] if len(table) + len(tail) > height else [*table, *tail]
        for place in range(height):
            right = rows[place] if place < len(rows) else []
            out.append([*crop(chart[place], chart_width), ("  ", "text"), *crop(right, 18)])
        return out
    chart = paint_chart(frame, width, max(1, height - len(legend)))
    return [*chart, *legend][:height]


def _table(recent: Phases, rounds: int) -> list[Line]:
    total = recent.total or 1.0
    rows: list[Line] = []
    for name in reversed(STACK):
        seconds = getattr(recent, name)
        if name in ("schedule", "prefill") and seconds < 0.005 * total:
            continue
        style = f"phase-{name}"
        rows.append(
            [
                ("▪ ", style),
                (f"{name:<9}", "text" if name != "realign" else "strong"),
                (f"{100 * seconds / total:>4.0f} %" if rounds else "   –", "dim"),
            ]
        )
    return rows


def _realign_lines(frame: Frame) -> list[Line]:
    timeline, number = frame.timeline, frame.cursor.round
    record = frame.record
    seconds = record.seconds.total if record else 0.0
    return [
        [],
        [("this round", "dim"), (_duration(seconds).rjust(8), "text")],
        [
            ("realign all", "dim"),
            (f"{100 * timeline.realign_share_at(number):.1f} %".rjust(7), "realign"),
        ],
        [("K/V moved ", "dim"), (bytes_words(timeline.bytes_at(number)).rjust(8), "text")],
    ]


def _legend(recent: Phases, names: list[str], rounds: int, width: int) -> Line:
    total = recent.total or 1.0
    line: Line = []
    for name in names:
        share = 100 * getattr(recent, name) / total
        line.append(("▪", f"phase-{name}"))
        line.append((f" {name} {share:.0f} %  ", "dim"))
    return crop(line, width)


def _shares(frame: Frame, width: int) -> list[Line]:
    number = frame.cursor.round
    share = frame.timeline.realign_share_at(number)
    moved = bytes_words(frame.timeline.bytes_at(number))
    return [
        spread(
            [("realign, all rounds ", "dim"), (f"{100 * share:.1f} %", "realign")],
            [(f"K/V moved {moved}", "dim")],
            width,
            (" ", "text"),
        )
    ]


def paint_chart(frame: Frame, width: int, height: int) -> list[Line]:
    """One column a round, the newest at the right, scaled to the tallest in view."""
    number = frame.cursor.round
    bars = [_bar(seconds) for seconds in frame.timeline.costs[max(0, number - width) : number]]
    tallest = _scale([sum(bar) for bar in bars])
    columns = [_column(bar, height, tallest) for bar in bars]
    blank = width - len(columns)
    lines: list[Line] = []
    for level in range(height - 1, -1, -1):
        line: Line = []
        if blank:
            line.append((("·" if level == 0 else " ") * blank, "faint"))
        line.extend(column[level] for column in columns)
        lines.append(line)
    return lines


def _axis(frame: Frame, width: int) -> Line:
    """The numbers of the first and the last round of the chart."""
    number = frame.cursor.round
    if number == 0:
        return []
    first = max(1, number - width + 1)
    blank = width - (number - first + 1)
    left = str(first) if number - first + 1 > len(str(first)) + len(str(number)) else ""
    return [
        (" " * blank, "text"),
        (left, "faint"),
        (str(number).rjust(width - blank - len(left)), "dim"),
    ]


def _bar(seconds: Phases) -> list[float]:
    return [getattr(seconds, name) for name in STACK[:-1]]


def _scale(heights: list[float]) -> float:
    """The tallest bar, but for a few outliers, which are cut."""
    if not heights:
        return 1.0
    ordered = sorted(heights)
    usual = ordered[int(0.95 * (len(ordered) - 1))]
    return max(usual * 1.1, 1e-9)


def _column(bar: list[float], height: int, tallest: float) -> list[tuple[str, str]]:
    """A stacked bar of eighths, from the bottom up: (sign, style) for each level."""
    edges: list[float] = []
    at = 0.0
    for part in bar:
        at += part / tallest * height * 8
        edges.append(min(at, height * 8))
    cells: list[tuple[str, str]] = []
    for level in range(height):
        low, high = level * 8, level * 8 + 8
        inside = [
            (min(edge, high) - max(begin, low), place)
            for place, (begin, edge) in enumerate(zip([0.0, *edges], edges, strict=False))
            if min(edge, high) > max(begin, low)
        ]
        filled = sum(size for size, _ in inside)
        if filled < 0.5:
            cells.append((" ", "text"))
        elif len(inside) == 1 or filled < 7.5:
            place = max(inside)[1]
            eighths = max(1, min(8, round(filled)))
            name = f"phase-{STACK[place]}"
            cells.append((EIGHTHS[eighths], f"{name}-on-{STACK[place]}" if eighths == 8 else name))
        else:
            first = inside[0]
            others = max(inside[1:])
            eighths = max(1, min(7, round(first[0])))
            cells.append((EIGHTHS[eighths], f"phase-{STACK[first[1]]}-on-{STACK[others[1]]}"))
    return cells


def _duration(seconds: float) -> str:
    if seconds >= 1.0:
        return f"{seconds:.2f} s"
    if seconds >= 0.001:
        return f"{1000 * seconds:.{0 if seconds >= 0.1 else 1}f} ms"
    return f"{1e6 * seconds:.0f} µs"


def bytes_words(count: int) -> str:
    """Bytes in the unit that suits them."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return ""
