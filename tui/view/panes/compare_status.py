"""What a comparison says of itself as a whole: one line, and a tab for each lane."""

from __future__ import annotations

from collections.abc import Sequence

from tui.view.lines import Line, crop, spread, width_of
from tui.view.panes.status import DTYPES, STATES, alarm_pieces
from tui.view.panes.verdict import rates
from tui.view.showable import showable
from tui.view.state.compare import Comparison, LaneFrame
from tui.view.state.cursor import Cursor

PACE_WORDS = {"round": "by rounds", "tokens": "by tokens", "time": "by time spent"}


def status_line(
    comparison: Comparison,
    looks: Sequence[LaneFrame],
    cursor: Cursor,
    *,
    state: str,
    pace: str,
    speed: float | None,
    following: bool,
    count: str,
    stage: str,
    width: int,
    note: str = "",
) -> Line:
    """The pair and what the lanes share at the left, the progress at the right."""
    typed: Line = [(f" {count} ", "typed")] if count else []
    if note:
        typed += [(" ◉ ", "broken"), (crop([(note, "")], 28)[0][0], "paused"), (" ", "text")]
    if not looks:
        return spread([(" COMPARE", "method"), (f"  {stage}", "dim")], typed, width, (" ", "text"))
    sign, style = STATES.get(state, ("·", "dim"))
    right: Line = [*typed, (f"{sign} ", style), (f"step {cursor.round}", "strong")]
    if not following:
        right.append((f" of {comparison.last}", "parked"))
    if state in ("finished", "failed"):
        right.append((f" · {state}", style))
    shown = pace
    if not following and 1 <= cursor.round <= len(comparison.paces):
        shown = comparison.paces[cursor.round - 1]
    if comparison.fork is None:
        right += [(" · in step ", "dim"), (PACE_WORDS[shown], "text")]
    if speed is not None:
        right.append((f" · {speed:g} steps/s", "dim"))
    right.append((" ", "text"))
    left = _identity(looks[0], comparison.fork, width - width_of(right) - 2)
    return spread(left, right, width, (" ", "text"))


def _identity(look: LaneFrame, fork: int | None, room: int) -> Line:
    timeline = look.frame.timeline
    setting = timeline.setting
    dtype = str(setting("dtype", ""))
    optional: list[Line] = [
        [(" " + showable(timeline.pair.name or timeline.pair.target), "text")],
        [("  COMPARE", "method")]
        if fork is None
        else [("  FORK", "method"), (f" after round {fork}", "parked")],
        alarm_pieces(look.frame),
        [(f"  {setting('device', '')} {DTYPES.get(dtype, dtype)}", "dim")],
        [("  K ", "dim"), (str(setting("draft_tokens")), "text")],
        [("  B ", "dim"), (str(setting("batch_size")), "text")],
        [("  W ", "dim"), (str(setting("window")), "text")],
        [("  rows ", "dim"), (str(len(timeline.tracks)), "text")],
    ]
    line: Line = []
    for pieces in optional:
        if width_of(line) + width_of(pieces) > room and line:
            break
        line += pieces
    return line


def tab_pieces(look: LaneFrame) -> Line:
    """A lane in few words: its method, and how many of its rows are right so far."""
    timeline = look.frame.timeline
    exact, total, _ = rates(look)
    name = timeline.method.upper() + (f" {showable(look.name)}" if look.name else "")
    style = "good" if exact == total else "diverged"
    if timeline.failure is not None:
        return [(name, "tab-current" if look.focused else "tab"), (" ✗", "broken")]
    figures = f" {exact}/{total}" if total else ""
    return [(name, "tab-current" if look.focused else "tab"), (figures, style if total else "dim")]
