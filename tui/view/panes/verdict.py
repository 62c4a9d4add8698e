"""Under a lane's batch: how much of it is right, what broke, and why, in plain sentences."""

from __future__ import annotations

from engine.config.faults import FAULTS
from engine.records.match import RowDivergence
from engine.records.violation import Violation
from tui.view.batch.rowtext import FORK
from tui.view.lines import Line, crop, spread, width_of, wrap
from tui.view.panes.invariants import NAMES
from tui.view.panes.sizes import method_piece
from tui.view.sentences import changed_words, row_divergence_words, violation_words
from tui.view.showable import showable
from tui.view.state.compare import LaneFrame

BAR = 12

TITLED = ("method", "fault")
"""Settings that a lane's title names anyway."""

MEASURE = "the others are compared with this run, right or wrong: there is no oracle"


def heading_title(look: LaneFrame) -> Line:
    """The method, and the round in which it is."""
    timeline = look.frame.timeline
    focused: Line = [("▸ ", "strong")] if look.focused else []
    name, style = method_piece(look.frame)
    line: Line = [*focused, (name, style if look.focused else "strong")]
    if look.name:
        line.append((f"  {showable(look.name)}", "text"))
    fault = _fault(look)
    if fault in FAULTS:
        line.append((f" fault: {FAULTS[fault].title}", "broken"))
    line += _divergences(look)
    line.append((f"  round {look.frame.cursor.round}", "dim"))
    if timeline.failure is not None and look.frame.cursor.round >= timeline.failure.round:
        line.append(("  ✗ failed", "broken"))
    elif timeline.summary is not None and look.frame.cursor.round == timeline.last:
        line.append(("  ■ done", "dim"))
    return line


def _fault(look: LaneFrame) -> str:
    """The fault of the lab that is on in this round, or is to go on in the next."""
    record = look.frame.record
    at_end = look.frame.cursor.round == look.frame.timeline.last
    if record is not None and not (at_end and look.frame.timeline.summary is None):
        return record.fault
    fault = look.frame.timeline.setting_at(look.frame.cursor.round + 1, "fault", "")
    return fault if isinstance(fault, str) else ""


def _divergences(look: LaneFrame) -> Line:
    """What this lane of a fork has otherwise than the other, beside its method."""
    timeline = look.frame.timeline
    if timeline.header is None or timeline.header.fork is None:
        return []
    fork = timeline.header.fork
    changes = [change for change in timeline.changes if change.round == fork and change.changed]
    settings = [name for name in changes[-1].changed if name not in TITLED] if changes else []
    words = changed_words(changes[-1], settings) if changes else []
    return [(f"  {FORK}", "parked"), *((f" {showable(part)}", "text") for part in words)]


def heading_note(look: LaneFrame, width: int) -> Line:
    """Pace, and what realignment costs."""
    timeline, number = look.frame.timeline, look.frame.cursor.round
    pace = timeline.tokens_at(number) / (timeline.seconds_at(number) or 1.0)
    line: Line = [(f" {pace:.0f}", "text"), (" tok/s", "dim")]
    if width >= 50:
        share = 100 * timeline.realign_share_at(number)
        line += [(" · realign ", "dim"), (f"{share:.1f} %", "realign")]
    return [*line, (" ", "dim")]


def rates(look: LaneFrame) -> tuple[int, int, float]:
    """Rows without a difference so far, rows that are compared, and the mean share that agrees."""
    exact = total = 0
    shares = 0.0
    for row, track in look.frame.timeline.tracks.items():
        if row not in look.match.oracle.answers:
            continue
        length = track.length_at(look.number) - track.prompt_length
        entry = look.match.divergence_at(row, look.number)
        if length <= 0 and entry is None:
            continue
        total += 1
        if entry is None:
            exact += 1
            shares += 1.0
            continue
        answer = look.match.oracle.answers[row].output
        due = max(length, len(answer)) if entry.divergence.got is None else length
        shares += min(1.0, entry.divergence.position / max(1, due))
    return exact, total, shares / total if total else 1.0


def verdict_lines(look: LaneFrame, width: int, height: int) -> list[Line]:
    """The figures in one line, then the sentences."""
    failure = look.frame.timeline.failure
    if failure is not None and look.frame.cursor.round >= failure.round:
        error_lines = wrap([("✗ " + showable(failure.message), "broken")], width)
        return [_figures(look, width), *error_lines][:height]
    lines = [_figures(look, width)]
    for words, style in _sentences(look):
        lines += wrap([(words, style)], width)
        if len(lines) >= height:
            break
    return [crop(line, width) for line in lines[:height]]


def _figures(look: LaneFrame, width: int) -> Line:
    exact, total, share = rates(look)
    if look.measure:
        return spread([("the measure", "dim")], _signs(look), width, (" ", "text"))
    if not total:
        words = "nothing is compared" if look.uncompared else "nothing to compare yet"
        return spread([(words, "dim")], _signs(look), width, (" ", "text"))
    right = exact == total
    style = "good" if right else "diverged"
    word = "same " if look.match.oracle.name and look.fork is None else "exact "
    line: Line = [(word, "dim"), (f"{exact}/{total}", style), ("  match ", "dim")]
    signs = _signs(look)
    room = width - width_of(line) - width_of(signs) - 8
    if room >= 4:
        bar = min(BAR, room)
        full = int(share * bar) if not right else bar
        line += [("━" * full, style), ("━" * (bar - full), "rule"), (" ", "dim")]
    line.append((f"{100 * share:.0f} %", style))
    return spread(line, signs, width, (" ", "text"))


def _signs(look: LaneFrame) -> Line:
    """A sign for each invariant: holds, is broken in this round, was broken before."""
    frame = look.frame
    record, number = frame.record, frame.cursor.round
    now = {violation.invariant for violation in record.violations} if record else set()
    ever = {violation.invariant for at, violation in frame.timeline.breaks if at <= number}
    checked = set(record.checked) if record else set()
    line: Line = []
    for name in NAMES:
        broken = name in now or name in ever
        sign, style = (
            ("✗", "broken") if broken else ("✓", "good") if name in checked else ("–", "dim")
        )
        line += [(" " if line else "", "text"), (name, style if broken else "dim"), (sign, style)]
    return line


def _sentences(look: LaneFrame) -> list[tuple[str, str]]:
    """The selected row's cause first, then the others by the round in which they diverged."""
    diverged = look.match.diverged(look.number)
    unlike = _unlike(look)
    if not diverged and (look.measure or (unlike and not rates(look)[1])):
        return [*(unlike or [(MEASURE, "dim")]), *_broken(look)]
    if not diverged:
        return [*unlike, *(_broken(look, "no token differs yet; ") or [_nothing(look)])]
    selected = look.frame.selected
    diverged.sort(key=lambda entry: entry.divergence.index != selected)
    groups: dict[str, list[RowDivergence]] = {}
    for entry in diverged:
        oracle = look.match.oracle
        words = row_divergence_words(entry, oracle.tolerance, oracle.name)
        groups.setdefault(words, []).append(entry)
    out = []
    for words, entries in groups.items():
        rows = [entry.divergence.index for entry in entries]
        style = "quiet" if entries[0].divergence.cause == "numeric" else "wrong"
        if selected in rows:
            style = "diverged" if style == "wrong" else "text"
        out.append((f"{_rows(rows)}: {showable(words)}", style))
    return out + unlike


def _unlike(look: LaneFrame) -> list[tuple[str, str]]:
    """The rows that cannot be compared, for their prompts are not the same."""
    rows = look.uncompared
    if not rows or look.measure:
        return []
    name = showable(look.match.oracle.name) or "the others"
    if len(rows) == len(look.frame.timeline.tracks):
        return [(f"no row has the prompt that it has in {name}: nothing is compared", "rejected")]
    return [(f"{_rows(rows)}: not the prompt of {name}, so not compared", "rejected")]


def _rows(rows: list[int]) -> str:
    if len(rows) == 1:
        return f"row {rows[0]}"
    names = ", ".join(str(row) for row in sorted(rows)[:6])
    return f"rows {names}" + (f" and {len(rows) - 6} more" if len(rows) > 6 else "")


def _nothing(look: LaneFrame) -> tuple[str, str]:
    """What there is to say of a lane whose tokens are all right."""
    if not look.frame.cursor.round:
        return "before round 1", "dim"
    name = look.match.oracle.name
    if look.fork is not None and look.lane == 0:
        return "the run itself, with which the other lane is compared", "dim"
    if not rates(look)[1]:
        return "the oracle has not answered yet", "dim"
    if name:
        return f"every token is that of {showable(name)}", "good"
    return "every token is the oracle's own", "good"


def _broken(look: LaneFrame, before: str = "") -> list[tuple[str, str]]:
    """The first breach of an invariant so far, if there is one."""
    number = look.frame.cursor.round
    breaks = [(at, broken) for at, broken in look.frame.timeline.breaks if at <= number]
    return [
        (f"{before}{_breach(broken)}, since round {at}", "rejected") for at, broken in breaks[:1]
    ]


def _breach(broken: Violation) -> str:
    who = "" if broken.row is None else f"row {broken.row}: "
    return f"{who}{showable(violation_words(broken))}"
