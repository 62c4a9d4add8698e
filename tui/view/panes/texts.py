"""The rows' texts as they grow: a tail of each, the selected one in full."""

from __future__ import annotations

from tui.view.lines import Line, crop, wrap
from tui.view.showable import fit_left, showable
from tui.view.state.frame import Frame
from tui.view.state.track import RowTrack

SEPARATOR = " › "
"""Between a prompt and what the model says to it."""

STEP = 1024
"""Long texts are cut at multiples of this, so that their lines do not dance."""


def visible_rows(frame: Frame) -> list[int]:
    """Rows in the order of the pane: those in the batch first, then the others by index."""
    record = frame.record
    number = frame.cursor.round
    tracks = frame.timeline.tracks
    if record is None:
        return list(tracks)
    batch = [row.row for row in record.rows]
    pool = [row.row for row in record.pool]
    seen = set(batch) | set(pool)
    done = [
        index
        for index, track in tracks.items()
        if index not in seen and (track.count_at(number) or track.error)
    ]
    return batch + pool + done


def texts_lines(frame: Frame, width: int, height: int) -> list[Line]:
    """All lines of the pane. The selected row takes what the others leave."""
    rows = visible_rows(frame)
    if not rows or width < 4:
        return []
    selected = frame.selected if frame.selected in rows else rows[0]
    lines: list[Line] = []
    room = max(3, height - (len(rows) - 1))
    for index in rows:
        track = frame.timeline.tracks[index]
        if index == selected:
            lines.extend(_full(frame, track, width, room))
        else:
            lines.append(_one_line(frame, track, width))
    return lines


def _head(frame: Frame, track: RowTrack, selected: bool) -> Line:
    name = f"{track.prompt.index:>2} "
    return [("▸" if selected else " ", "strong"), (name, "strong" if selected else "dim")]


def _end(frame: Frame, track: RowTrack) -> Line:
    number = frame.committed_round
    if track.error:
        return [(" ■ error", "broken")]
    if track.finished_at(number):
        return [(f" ■ {track.finish_reason}", "dim")]
    return []


def _one_line(frame: Frame, track: RowTrack, width: int) -> Line:
    head = _head(frame, track, False)
    end = _end(frame, track)
    room = max(1, width - 4 - sum(len(text) for text, _ in end) - (0 if end else 1))
    old, new = track.text_at(frame.committed_round)
    old_text = showable(old[-room:])
    new_text = showable(new[-room:])
    prompt = showable(track.prompt.text[-room:])
    if whole_new := old_text + new_text:
        old_text = old_text.lstrip(" ") if old_text else old_text
        new_text = new_text if old_text else whole_new.lstrip(" ")
        prompt += SEPARATOR
    whole = prompt + old_text + new_text
    tail = fit_left(whole, room) if whole else ""
    tail = tail.rstrip()
    fresh = len(new_text)
    shown_new = tail[len(tail) - fresh :] if fresh and fresh <= len(tail) else tail if fresh else ""
    shown_old = tail[: len(tail) - len(shown_new)]
    in_prompt = max(0, len(shown_old) - len(old_text))
    line: Line = [
        *head,
        (shown_old[:in_prompt], "prompt"),
        (shown_old[in_prompt:], "quiet" if end else "text"),
        (shown_new, "accepted"),
    ]
    if not end:
        line.append(("▌", "dim"))
    return [*crop(line, width - sum(len(text) for text, _ in end)), *end]


def _full(frame: Frame, track: RowTrack, width: int, room: int) -> list[Line]:
    old, new = track.text_at(frame.committed_round)
    need = room * width
    prompt, old_tail = "", _tail(old, need)
    if len(old_tail) == len(old):
        prompt, old_tail = _tail(track.prompt.text, max(0, need - len(old))), old.lstrip(" ")
    cut = len(prompt) < len(track.prompt.text)
    pieces = [(showable(prompt, newlines=True), "prompt")]
    if prompt:
        pieces.append((SEPARATOR, "dim"))
    if old:
        pieces += [
            (showable(old_tail, newlines=True), "text"),
            (showable(new, newlines=True), "accepted"),
        ]
    else:
        pieces.append((showable(new.lstrip(" "), newlines=True), "accepted"))
    end = _end(frame, track)
    pieces.append(("▌", "dim") if not end else ("", "text"))
    if track.error:
        pieces.append((" " + showable(track.error), "broken"))
    body = wrap(pieces, width - 5)
    if len(body) > room or cut:
        body = body[-room:]
        body[0] = [("… ", "dim"), *body[0]]
    lines: list[Line] = []
    for place, text in enumerate(body):
        head = _head(frame, track, True) if place == 0 else [(" ", "text"), ("│  ", "rule")]
        lines.append(crop([*head, *text], width))
    if end:
        size = sum(len(text) for text, _ in end)
        lines[-1] = [*crop(lines[-1], width - size), *end]
    return lines


def _tail(text: str, need: int) -> str:
    """The end of a text, `need` characters or somewhat more."""
    return text[max(0, (len(text) - need) // STEP * STEP) :]
