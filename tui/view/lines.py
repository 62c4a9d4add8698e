"""Lines of styled text, as plain values: what the views make and the panes draw.

A line is a list of (text, style name) pieces. The style names are those of
`tui.widgets.pane`, where the theme gives them their colours.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, get_character_cell_size

from tui.view.showable import fit

Piece = tuple[str, str]
Line = list[Piece]


def width_of(line: Sequence[Piece]) -> int:
    return sum(cell_len(text) for text, _ in line)


def crop(line: Sequence[Piece], width: int, style: str = "text") -> Line:
    """The line cut or filled to exactly `width` terminal cells."""
    out: Line = []
    left = width
    for text, name in line:
        if left <= 0:
            break
        length = cell_len(text)
        if length > left:
            text = fit(text, left)
            length = left
        out.append((text, name))
        left -= length
    if left > 0:
        out.append((" " * left, style))
    return out


def spread(left: Sequence[Piece], right: Sequence[Piece], width: int, fill: Piece) -> Line:
    """`left` and `right` at the two ends of a line, `fill` between; right goes first if tight."""
    right_width = width_of(right)
    if right_width > width:
        return crop(right, width)
    room = width - right_width
    left_width = width_of(left)
    if left_width > room:
        return [*crop(left, room), *right]
    return [*left, (fill[0] * (room - left_width), fill[1]), *right]


def wrap(pieces: Sequence[Piece], width: int) -> list[Line]:
    """Break text into lines of `width` cells, at spaces where there are any.

    Line feeds in the text begin a new line.
    """
    if width <= 0:
        return []
    lines: list[Line] = []
    current: list[tuple[str, str]] = []
    used = 0
    for text, style in pieces:
        for character in text:
            if character == "\n":
                lines.append(_join(current))
                current, used = [], 0
                continue
            size = get_character_cell_size(character)
            if used + size > width:
                current, used, done = _break(current, character)
                lines.append(_join(done))
                if character == " ":
                    continue
            current.append((character, style))
            used += size
    lines.append(_join(current))
    return lines


def _break(
    current: list[tuple[str, str]], character: str
) -> tuple[list[tuple[str, str]], int, list[tuple[str, str]]]:
    """Split a full line at its last space: what goes on, its width, what is done."""
    if character != " ":
        for place in range(len(current) - 1, max(0, len(current) - 24), -1):
            if current[place][0] == " ":
                rest = current[place + 1 :]
                return rest, sum(get_character_cell_size(c) for c, _ in rest), current[:place]
    return [], 0, current


def _join(characters: Sequence[tuple[str, str]]) -> Line:
    out: Line = []
    for character, style in characters:
        if out and out[-1][1] == style:
            out[-1] = (out[-1][0] + character, style)
        else:
            out.append((character, style))
    return out


def plain(line: Sequence[Piece]) -> str:
    return "".join(text for text, _ in line)
