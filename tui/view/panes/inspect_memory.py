"""A row in memory: the columns as the target read them, and after the round; what moved."""

from __future__ import annotations

from engine.config.counted import counted
from tui.view.batch.cells import Kind, Segment, fed, kept
from tui.view.batch.tensor import in_cache
from tui.view.lines import Line, crop
from tui.view.panes.cost import bytes_words
from tui.view.sentences import schedule_words
from tui.view.showable import fit
from tui.view.state.closeup import CloseUp
from tui.view.state.completed import CACHELESS, UNKNOWN
from tui.view.state.cursor import LAST, Phase

NAMES = {
    Kind.PAD: "padding",
    Kind.PROMPT: "prompt",
    Kind.COMMITTED: "committed",
    Kind.ACCEPTED: "accepted",
    Kind.BONUS: "bonus",
    Kind.PROPOSED: "drafted",
    Kind.REJECTED: "rejected",
    Kind.STALE: "stale",
    Kind.GHOST: "ghost",
}


SHORT = {
    "ghost: not the row's own": "ghost: not its own",
    "none yet: fed next round": "none yet",
    "written in this round": "written this round",
}
"""What is said of the K/V, where there is less room."""


def memory_lines(look: CloseUp, width: int) -> list[Line]:
    """What lay in which column: when the target read it, and after the round."""
    row, phase = look.row, look.frame.cursor.phase
    if not row.fed and not row.kept:
        return [crop([("how it lay in memory was not recorded", "dim")], width)]
    track = look.frame.timeline.tracks[row.row]
    shown = Phase.ACCEPT if phase is LAST else phase
    method = look.frame.method
    before = fed(row, track.prompt_length, Phase.VERIFY if shown > Phase.VERIFY else shown)
    before = in_cache(before, method)
    lines: list[Line] = [[("as the target read it", "title")], _columns_head(width)]
    lines += [_segment(segment, width, cache=False) for segment in before]
    if phase is LAST:
        after = in_cache(kept(row, track.prompt_length), method)
        lines += [[], [("after the round", "title")], _columns_head(width)]
        lines += [_segment(segment, width, cache=True) for segment in after]
    return [crop(line, width) for line in lines]


def _columns_head(width: int) -> Line:
    size = _size(width)
    words = fit("  columns", size + 2) + fit("tokens", size) + fit("", 10) + fit("positions", size)
    return [(words + fit("mask", 11) + "K/V", "dim")]


def _size(width: int) -> int:
    """Cells of a column of the tables."""
    return 12 if width >= 100 else 10


def _segment(segment: Segment, width: int, *, cache: bool) -> Line:
    tokens = _range(segment.first, segment.length) if segment.first >= 0 else "–"
    position = "–" if segment.position is None else _range(segment.position, segment.length)
    size = _size(width)
    mask = "○ hidden"
    if segment.attended:
        mask = "◐ in part" if segment.beyond else "● attended"
    if segment.kind is Kind.PAD:
        held = ""
    elif segment.kind is Kind.GHOST:
        held = "ghost: not the row's own"
    elif segment.kind is Kind.STALE and cache:
        held = "stale"
    elif not segment.cached:
        held = "none yet: fed next round" if cache else "written in this round"
    elif segment.kind in (Kind.PROPOSED, Kind.REJECTED, Kind.ACCEPTED) and not cache:
        held = "written in this round"
    else:
        held = "valid"
    if width < 100:
        held = SHORT.get(held, held)
    return [
        ("  " + fit(_range(segment.start, segment.length), size), "text"),
        (fit(tokens, size), "text"),
        (fit(NAMES.get(segment.kind, ""), 10), segment.kind.value),
        (fit(position, size), "text"),
        (fit(mask, 11), "text" if segment.attended else "dim"),
        (held, "dim" if held == "valid" else "text"),
    ]


def _range(first: int, length: int) -> str:
    return str(first) if length == 1 else f"{first}…{first + length - 1}"


def moved_lines(look: CloseUp, width: int) -> list[Line]:
    """The realignment of this row: from where to where, and how many bytes that is."""
    row = look.row
    if look.frame.cursor.phase is not LAST:
        return []
    lines = [
        [("realignment  ", "title"), *_move(look)],
        [("cache        ", "title"), (_cache_words(look), "text")],
    ]
    if row.finish_reason:
        lines.append([("ended        ", "title"), (row.finish_reason, "text")])
    record = look.frame.record
    words = schedule_words(record, row) if record is not None else ""
    if words:
        lines.append([("schedule     ", "title"), (words, "text")])
    return [crop(line, width) for line in lines]


def _cache_words(look: CloseUp) -> str:
    """How many slots are the row's, or only count as such."""
    row = look.row
    if look.frame.method in CACHELESS:
        return "none: every token is fed anew in each round"
    ghosts = sum(span.length for span in row.kept if span.kind == "ghost")
    if not row.kept and not row.kv_length:
        return UNKNOWN
    count = row.kv_length
    words = f"{counted(count, 'slot')} hold{'s' * (count == 1)} committed tokens"
    if ghosts:
        words = f"{counted(count, 'slot')} count{'s' * (count == 1)} as the row's, "
        words += "all of them ghosts" if ghosts >= count else f"{ghosts} of them ghosts"
    return f"{words} (draft: {row.draft_kv_length})"


def _move(look: CloseUp) -> Line:
    row, timeline = look.row, look.frame.timeline
    record = timeline.round_at(look.frame.cursor.round)
    if record is not None and record.kind == "slots":
        return [("a slot never moves: δ does not exist", "text")]
    if row.finish_reason:
        return [("the row has left the batch", "text")]
    if not row.kept and not row.delta:
        return [(UNKNOWN, "dim")]
    if row.delta == 0:
        return [("δ = 0: the row stays in its columns", "text")]
    old, length = row.padding - row.delta, row.before
    if look.frame.method == "exspec":
        words = f"δ = {row.delta:+d}: padded by {row.delta} to meet longer rows, and unpadded again"
    else:
        old_columns, columns = _range(max(0, old), length), _range(row.padding, length)
        words = f"δ = {row.delta:+d}: columns {old_columns} → {columns}"
    if record is not None and record.fault == "kv-not-realigned":
        return [(words, "realign"), ("; the K/V were left where they are", "broken")]
    each = timeline.pair.kv_bytes_per_token
    if each and look.frame.method not in CACHELESS:
        moved = 2 * row.kv_length * each
        words += f", {bytes_words(moved)} of the target's K/V read and written"
    return [(words, "realign")]
