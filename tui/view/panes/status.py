"""The status line: what is running, and how it goes."""

from __future__ import annotations

from engine.config.faults import FAULTS
from tui.view.lines import Line, crop, spread, width_of
from tui.view.panes.invariants import broken_pieces
from tui.view.panes.sizes import method_piece, size_pieces
from tui.view.showable import showable
from tui.view.state.frame import Frame

TABS_BELOW = 100
"""Cells below which a screen shows one of the lower panes at a time."""

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}


def identity(frame: Frame, width: int) -> Line:
    """The pair, the method, where it runs, and its sizes."""
    timeline = frame.timeline
    if timeline.header is None:
        return [(" batchspec-tui", "strong")]
    device = str(timeline.setting("device", ""))
    dtype = str(timeline.setting("dtype", ""))
    line: Line = [
        (" " + showable(timeline.pair.name or timeline.pair.target), "text"),
        ("  ", "text"),
        method_piece(frame),
        *_out_of_sight(frame, width),
        *alarm_pieces(frame),
        (f"  {device} {DTYPES.get(dtype, dtype)}", "dim"),
    ]
    return [*line, ("  ", "text"), *size_pieces(frame)]


def _out_of_sight(frame: Frame, width: int) -> Line:
    """The broken invariants, where the screen is too small for their pane beside the others."""
    pieces = broken_pieces(frame) if width < TABS_BELOW else []
    return [("  ", "text"), *pieces] if pieces else []


def alarm_pieces(frame: Frame) -> Line:
    """Synthetic acceptance, or the fault of the lab that is on, so that nobody takes the run for
    a right one."""
    rate = frame.timeline.setting("force_accept")
    if isinstance(rate, int | float):
        return [("  ", "text"), (f" forced: {rate:.0%} accepted ", "alarm")]
    record = frame.record
    name = record.fault if record is not None else frame.timeline.setting("fault")
    then = frame.fault_next if frame.cursor.round == frame.timeline.last else None
    if record is None and then is not None:
        name = then
    elif then is not None and then != name:
        words = f"{FAULTS[then].title} from the next round" if then else "off from the next round"
        return [("  ", "text"), (f" fault: {words} ", "alarm" if then else "paused")]
    if not isinstance(name, str) or name not in FAULTS:
        return []
    return [("  ", "text"), (f" fault: {FAULTS[name].title} ", "alarm")]


def progress(frame: Frame, state: str, speed: float | None, following: bool, width: int) -> Line:
    """The round, the pace and the figures, as many as fit."""
    timeline, number = frame.timeline, frame.cursor.round
    sign, style = STATES.get(state, ("·", "dim"))
    line: Line = [(f"{sign} ", style)]
    line.append((f"round {number}", "strong"))
    if not following:
        line.append((f" of {timeline.last}", "parked"))
    if state in ("finished", "failed", "replay"):
        line.append((f" · {state}", style))
    elif speed is not None:
        line.append((f" · {speed:g} rounds/s", "dim"))
    pace = timeline.speed_at(number)
    if state in ("finished", "replay") and number == timeline.last:
        pace = timeline.speed_at(number, over=number)
    record = frame.record
    drafted = record.draft_tokens if record else 0
    optional: list[Line] = [
        [(" · ", "rule"), (f"{pace:.0f}", "text"), (" tok/s", "dim")],
        [
            (" · accepted ", "dim"),
            (f"{timeline.accepted_at(number):.1f}/{drafted}", "accepted"),
        ],
        [
            (" · realign ", "dim"),
            (f"{100 * timeline.realign_share_at(number):.1f} %", "realign"),
        ],
    ]
    if not drafted:
        del optional[1]
    if not timeline.seconds_at(number):  # the records do not tell what a round cost
        optional = optional[1:-1]
    if number == 0:
        optional = []
    for pieces in optional:
        if width_of(line) + width_of(pieces) + 1 <= width:
            line += pieces
    return [*line, (" ", "text")]


STATES = {
    "running": ("▶", "good"),
    "paused": ("❚❚", "paused"),
    "loading": ("…", "dim"),
    "finished": ("■", "dim"),
    "replay": ("■", "dim"),
    "failed": ("✗", "broken"),
    "stopped": ("■", "dim"),
}


def status_lines(
    frame: Frame,
    state: str,
    speed: float | None,
    following: bool,
    count: str,
    width: int,
    height: int,
    note: str = "",
) -> list[Line]:
    """One line where there is room for both halves, else two."""
    left = identity(frame, width)
    typed: Line = [(f" {count} ", "typed")] if count else []
    if note:
        typed += [(" ◉ ", "broken"), (crop([(note, "")], 28)[0][0], "paused"), (" ", "text")]
    if height >= 2:
        return [
            spread(left, typed, width, (" ", "text")),
            crop([(" ", "text"), *progress(frame, state, speed, following, width - 1)], width),
        ]
    room = width - width_of(left) - width_of(typed) - 2
    if room < 34:
        left = [*_out_of_sight(frame, width), *alarm_pieces(frame)]
        right = progress(frame, state, speed, following, width - width_of([*typed, *left]))
        return [spread(left, [*typed, *right], width, (" ", "text"))]
    right = progress(frame, state, speed, following, room)
    return [spread(left, [*typed, *right], width, (" ", "text"))]
