"""The invariants after each round, and what broke first, in plain words."""

from __future__ import annotations

from engine.config.counted import counted
from engine.records.violation import Violation
from tui.view.lines import Line, wrap
from tui.view.sentences import violation_words
from tui.view.showable import fit, showable
from tui.view.state.frame import Frame

NAMES = {
    "I1": "rectangle",
    "I2": "positions",
    "I3": "cache",
    "I4": "mask",
    "I5": "commit",
}


def invariants_lines(frame: Frame, width: int, height: int) -> list[Line]:
    """A sign for each invariant, the first breach, and how many rows are done."""
    number = frame.cursor.round
    timeline = frame.timeline
    record = frame.record
    checked = set(record.checked) if record else set()
    now = {violation.invariant for violation in record.violations} if record else set()
    breaks = [(at, violation) for at, violation in timeline.breaks if at <= number]
    ever = {violation.invariant for _, violation in breaks}
    signs = []
    for name, word in NAMES.items():
        if name in now:
            sign, style = "✗", "broken"
        elif name in ever:
            sign, style = "!", "rejected"
        elif name in checked:
            sign, style = "✓", "good"
        else:
            sign, style = "–", "dim"
        signs.append((name, word, sign, style))
    lines: list[Line] = []
    long = width >= 32 and height >= 5 and not breaks
    line: Line = []
    used = 0
    for name, word, sign, style in signs:
        text = f" {name} {word}" if long else f" {name}"
        size = len(text) + 4
        if used + size > width and line:
            lines.append(line)
            line, used = [], 0
        line += [(sign, style), (text.ljust(16) if long else text + "  ", "text")]
        used += 17 if long else size
    lines.append(line)
    if breaks:
        at, violation = breaks[0]
        who = "" if violation.row is None else f"row {violation.row}, "
        words = f"{violation.invariant} {who}round {at}: {showable(violation_words(violation))}"
        lines += wrap([(words, "broken")], width)[: max(1, height - 2)]
        return lines + _others(breaks, width)  # the pane scrolls: each row is named
    if checked:
        lines.append([(f"held in all {number} rounds" if number > 1 else "held", "dim")])
    return lines[:height]


def _others(breaks: list[tuple[int, Violation]], width: int) -> list[Line]:
    """A line for each other invariant that broke, where it first did; then the other rows."""
    seen = {breaks[0][1].invariant}
    lines: list[Line] = []
    more: list[tuple[int, Violation]] = []
    for at, violation in breaks[1:]:
        if violation.invariant in seen:
            more.append((at, violation))
        else:
            seen.add(violation.invariant)
            who = "" if violation.row is None else f"row {violation.row}, "
            words = f"{violation.invariant} {who}round {at}: {showable(violation_words(violation))}"
            lines.append([(fit(words, width).rstrip(), "rejected")])
    if more:
        words = f"and the same in {counted(len(more), 'more row')}: {_rows(more)}"
        lines += wrap([(words, "dim")], width)
    return lines


def _rows(breaks: list[tuple[int, Violation]]) -> str:
    """Which rows broke which invariant, and in which round: `I3 row 2 r4, row 5 r6`."""
    by_name: dict[str, list[str]] = {}
    for at, violation in breaks:
        who = "the batch" if violation.row is None else f"row {violation.row}"
        by_name.setdefault(violation.invariant, []).append(f"{who} r{at}")
    return "; ".join(f"{name} {', '.join(rows)}" for name, rows in by_name.items())


def broken_pieces(frame: Frame) -> Line:
    """In two words what is broken, for where the pane itself is out of sight."""
    number = frame.cursor.round
    record = frame.record
    now = sorted({violation.invariant for violation in record.violations}) if record else []
    if now:
        return [(f"✗ {' '.join(now)}", "broken")]
    ever = sorted({violation.invariant for at, violation in frame.timeline.breaks if at <= number})
    return [(f"! {' '.join(ever)}", "rejected")] if ever else []


def rows_note(frame: Frame) -> Line:
    """How many rows are done, for the heading."""
    timeline = frame.timeline
    total = len(timeline.tracks)
    done = timeline.finished_at(frame.committed_round)
    return [(f" {done}/{total}", "text"), (" done ", "dim")]
