"""The tour's panel: a strip between the tensor and the lower panes, never over either."""

from __future__ import annotations

from tui.tour.guide import Guide, State
from tui.view.lines import Line, crop, spread, width_of, wrap
from tui.view.showable import showable
from tui.view.state.frame import Frame
from tui.widgets.pane import Pane

WIDEST = 116
"""Columns of text at most: longer lines are hard to read."""

LINES = 5
"""Of text under the heading."""


class TourPanel(Pane):
    """The stop's title, what is to be known, what the records say, and where to look."""

    DEFAULT_CSS = """
    TourPanel { height: 6; overflow-y: hidden; }
    TourPanel.-left { height: 1; }
    """

    def __init__(self, guide: Guide, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.guide = guide
        self.at_stop = True
        self.rounds = 0
        """Made so far, while the stop is sought."""
        self.note = ""
        """Where the records come from."""
        self.why = ""
        """Why that is not the engine."""

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        lines = [tour_heading(self.guide, self.at_stop, self.note, width)]
        if self.guide.state is not State.LEFT:
            lines += tour_lines(self.guide, self.rounds, width)
            if self.why and self.guide.stop == 0:
                lines.insert(LINES, _reason(self.why, width))
        return lines[:height]


def tour_heading(guide: Guide, at_stop: bool, note: str, width: int) -> Line:
    """Where the tour is, where its records come from, and the keys that go on with it."""
    count = len(guide.now.moments)
    title: Line = [(f" {guide.now.title}", "strong")]
    if count > 1:
        title.append((f"  {guide.moment + 1} of {count}", "dim"))
    left: Line = [("─ ", "rule"), ("tour ", "title"), *_dots(guide), *title, (" ", "rule")]
    keys = _keys(guide, at_stop)
    need = sum(len(key) + len(word) + 3 for key, word in keys[:2]) + 6
    if width_of(left) + len(note) + need > width:
        note = note.split(" ")[0]
    if width_of(left) + len(note) + need > width:
        left = [("─ ", "rule"), ("tour", "title"), *title, (" ", "rule")]
    right: Line = [(f" {note} ", "dim"), ("─", "rule"), (" ", "rule")]
    room = width - width_of(left) - width_of(right) - 1
    for key, word in keys:
        room -= len(key) + len(word) + 3
        if room < 0:
            break
        right += [(key, "key"), (f" {word}  ", "dim")]
    return spread(left, [*right, ("─", "rule")], width, ("─", "rule"))


def _keys(guide: Guide, at_stop: bool) -> list[tuple[str, str]]:
    """The keys of the tour, the one that is wanted most first."""
    if guide.state is State.LEFT:
        return [("T", "back to it"), ("S", "stops")]
    if at_stop:
        return [("PgDn", "next"), ("S", "stops"), ("T", "leave"), ("PgUp", "back")]
    return [("T", "back to the stop"), ("PgDn", "next"), ("S", "stops")]


def _dots(guide: Guide) -> Line:
    """A sign a stop: seen, here, still to come."""
    here = guide.stop
    rest = len(guide.stops) - here - 1
    return [("•" * here, "dim"), ("●", "method"), ("·" * rest, "dim")]


def tour_lines(guide: Guide, rounds: int, width: int) -> list[Line]:
    """The words, and where to look, in at most `LINES` lines."""
    look: Line = [("  ▸ ", "method"), (guide.moment_now.look, "quiet")]
    return [*tour_body(guide, rounds, width)[: LINES - 1], crop(look, width)]


def tour_body(guide: Guide, rounds: int, width: int) -> list[Line]:
    """What is to be known, and what the records say: on a line of its own, where that fits."""
    lead: Line = [(guide.moment_now.lead, "text")]
    said = _said(guide, rounds)
    room = min(width - 4, WIDEST)
    lines = [*wrap(lead, room), *wrap(said, room)]
    if len(lines) >= LINES:
        lines = wrap([*lead, (" ", "text"), *said], room)
    return [[("  ", "text"), *line] for line in lines]


def _reason(why: str, width: int) -> Line:
    return crop([("  recorded: ", "parked"), (showable(why), "quiet")], width)


def _said(guide: Guide, rounds: int) -> Line:
    if guide.state is not State.SEEKING:
        return guide.words()
    made = f"round {rounds} of {guide.now.rounds}" if rounds else "the engine begins"
    return [(f"{guide.now.method.upper()} runs: {made} …", "dim")]
