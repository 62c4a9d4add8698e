"""A check as lines: the rates, a line a row, and a row's two texts around the difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine.records.divergence import agreement
from tui.view.check_words import cause_words
from tui.view.lines import Line, crop, wrap
from tui.view.showable import showable
from tui.view.state.timeline import BLANK

if TYPE_CHECKING:
    from engine.evaluation.check.diagnose import Cause
    from tui.view.state.checked import Checked

Piece = Callable[[int], str]
"""The text of a token."""

STYLES = {"numeric": "quiet", "stopped": "paused", "past_end": "paused", "unexplained": "dim"}
"""Of the causes; the others are mistakes."""

BEFORE, AFTER = 60, 24
"""Tokens of agreement and of what follows that are shown at most."""


class Entry(NamedTuple):
    """One row of the table."""

    row: int
    share: float
    """Of the oracle's tokens before the first difference: 1 where there is none."""
    cause: Cause | None
    error: str = ""
    begun: bool = True
    """Whether the file has anything of it."""


NOT_BEGUN = "the row had not begun where the trace ends"


def entries(checked: Checked) -> list[Entry]:
    """All rows, in their order."""
    result = checked.result
    causes = {cause.index: cause for cause in result.divergences}
    answers = {answer.index: answer.output_ids for answer in result.answers}
    found = []
    for prompt in checked.prompts:
        row = prompt.index
        if row in result.errors:
            found.append(Entry(row, 0.0, None, result.errors[row]))
            continue
        if not checked.foreign.rows[row].begun:
            found.append(Entry(row, 0.0, None, begun=False))
            continue
        cause, due = causes.get(row), answers.get(row, ())
        share = 1.0 if cause is None else min(1.0, cause.position / max(1, len(due)))
        found.append(Entry(row, share, cause))
    return found


def summary_lines(checked: Checked, width: int) -> list[Line]:
    """How much is right, against what, and how often each cause was found."""
    result = checked.result
    style = "good" if result.exact == result.total else "diverged"
    first: Line = [
        (f"{result.exact} of {result.total} rows exact", style),
        (f"  {100 * result.exact_rate:.1f} %", style),
        (f"   partial {100 * result.partial_rate:.1f} %", "text"),
    ]
    cut = result.cut_at_eos
    if cut.exact != result.exact:
        first.append((f"   cut at eos {100 * cut.exact_rate:.1f} %", "dim"))
    counted = ", ".join(f"{_name(name)} {count}" for name, count in result.causes.items())
    sentence = (
        f"against {showable(result.pair.target)}, {result.settings['device']} "
        f"{result.settings['dtype']}, tolerance {result.tolerance:.3g}"
    )
    lines: list[Line] = [first, [(sentence, "dim")]]
    if counted:
        lines.append([("causes: ", "dim"), (counted, "text")])
    lines += [[(showable(notice), "paused")] for notice in result.notices]
    return [crop(line, width) for line in lines]


class Column(NamedTuple):
    """A figure of the table."""

    name: str
    width: int
    right: bool = True


def columns(width: int) -> list[Column]:
    """Those for which there is room; the last one takes the rest."""
    fixed = [Column("row", 4), Column("match", 7), Column("token", 6), Column("gap", 7)]
    cause = Column("cause", 14, False)
    pair = Column("due ≠ got", 26 if width >= 100 else 18, False)
    rest = width - sum(one.width + 1 for one in (*fixed, cause, pair))
    if rest < 12:
        return [*fixed, cause, Column("due ≠ got", max(8, rest + pair.width), False)]
    return [*fixed, cause, pair, Column("why", rest, False)]


def head_line(width: int) -> Line:
    """The columns' names."""
    names = " ".join(_fit(one, one.name) for one in columns(width))
    return crop([(names.rstrip(), "dim")], width)


def entry_line(entry: Entry, piece: Piece, width: int) -> Line:
    """One row of the table."""
    cause = entry.cause
    style = "good" if cause is None else STYLES.get(cause.cause, "broken")
    cells: dict[str, Line] = {"row": [(str(entry.row), "text")]}
    if entry.error:
        cells |= {"match": [("error", "broken")], "cause": [(entry.error, "broken")]}
    elif not entry.begun:
        cells |= {"match": [("–", "dim")], "cause": [("not begun", "dim")]}
    elif cause is None:
        cells["match"] = [("exact ✓", "good")]
    else:
        gap = "–" if cause.oracle_gap is None else f"{cause.oracle_gap:.3g}"
        cells |= {
            "match": [(f"{100 * entry.share:.0f} %", "text")],
            "token": [(str(cause.position), "text")],
            "gap": [(gap, "text")],
            "cause": [(f"{_name(cause.cause)} {cause.invariant or ''}".strip(), style)],
            "due ≠ got": [
                (f"‹{_piece(cause.expected, piece)}›", "due"),
                (f"≠{_piece(cause.got, piece)}", "diverged"),
            ],
            "why": [(_message(cause), "quiet")],
        }
    line: Line = []
    for one in columns(width):
        cell = cells.get(one.name, [])
        text = "".join(part for part, _ in cell)
        if one.right:
            line.append((_fit(one, text) + " ", cell[0][1] if cell else "text"))
        else:
            line += [*crop(cell, one.width), (" ", "text")]
    return crop(line, width)


def detail_lines(checked: Checked, row: int, width: int) -> list[Line]:
    """The two texts around a row's first difference, the token marked, and its cause in full."""
    entry = next(one for one in entries(checked) if one.row == row)
    if entry.error:
        return wrap([(showable(entry.error), "broken")], width)
    if not entry.begun:
        return wrap([(NOT_BEGUN, "dim")], width)
    piece = checked.tokenizer.piece
    answers = {answer.index: answer for answer in checked.result.answers}
    due = answers[row].output_ids
    got = checked.foreign.rows[row].output_ids
    cause = entry.cause
    place = cause.position if cause is not None else agreement(due, got)
    prompt = checked.prompts[row]
    lines = _part("prompt", [(_tail_of(prompt.ids, piece, 3 * width), "prompt")], width)
    lines += _part("the oracle", _text(due, place, piece, "due", "‹", "›"), width)
    lines += _part("the file", _text(got, place, piece, "diverged", "≠", ""), width)
    if cause is not None:
        lines += _part("token ids", _ids(due, got, place), width)
        lines += _part("cause", _cause(cause, checked.result.tolerance), width)
    return lines


def _text(
    tokens: Sequence[int], place: int, piece: Piece, style: str, before: str, after: str
) -> Line:
    """The tokens around a place, that one set apart."""
    begin = max(0, place - BEFORE)
    line: Line = [("…", "dim")] if begin else []
    line.append(("".join(_shown(token, piece) for token in tokens[begin:place]), "text"))
    if place >= len(tokens):
        line.append((" ■ the end", style if style == "diverged" else "dim"))
        return line
    text = _shown(tokens[place], piece)
    if text.startswith(" ") and text.strip():
        line.append((" ", "text"))
        text = text.lstrip()
    line.append((f"{before}{text if text.strip() else BLANK}{after}", style))
    rest = "".join(_shown(token, piece) for token in tokens[place + 1 : place + 1 + AFTER])
    line.append((rest, "quiet"))
    if place + 1 + AFTER < len(tokens):
        line.append(("…", "dim"))
    return line


def _ids(due: Sequence[int], got: Sequence[int], place: int) -> Line:
    """The ids around the place."""
    begin = max(0, place - 3)
    line: Line = [("… " if begin else "", "dim")]
    line.append((" ".join(str(token) for token in due[begin:place]) + " ", "text"))
    line.append((f"‹{due[place] if place < len(due) else 'the end'}›", "due"))
    line.append((" ", "text"))
    line.append((f"≠{got[place] if place < len(got) else 'the end'}", "diverged"))
    return line


def _cause(cause: Cause, tolerance: float) -> Line:
    style = STYLES.get(cause.cause, "broken")
    name = f"{_name(cause.cause)} {cause.invariant or ''}".strip()
    line: Line = [(name, style), (f": {_message(cause)}", "text")]
    facts = []
    if cause.oracle_gap is not None:
        facts.append(
            f"the oracle's two best logits are {cause.oracle_gap:.3g} apart, "
            f"rounding explains {tolerance:.3g}"
        )
    if cause.rank is not None and cause.distance is not None:
        facts.append(
            f"the file's token is the target's choice number {cause.rank}, "
            f"{cause.distance:.3g} below the best"
        )
    if cause.explained is not None and cause.of:
        facts.append(
            f"of {cause.of} tokens that a right reading does not give, "
            f"the mistake gives {cause.explained}"
        )
    if cause.round is not None:
        facts.append(f"round {cause.round}")
    return [*line, *((f"\n· {fact}", "quiet") for fact in facts)]


def _message(cause: Cause) -> str:
    """In words, without the name that stands before it."""
    return showable(cause_words(cause)).removeprefix(f"{_name(cause.cause)}: ")


def _part(name: str, text: Line, width: int) -> list[Line]:
    """A paragraph under its name."""
    return [[(name, "title")], *[[("  ", "text"), *line] for line in wrap(text, width - 2)], []]


def _tail_of(tokens: Sequence[int], piece: Piece, room: int) -> str:
    text = "".join(_shown(token, piece) for token in tokens[-room:])
    return text if len(text) <= room else "…" + text[-room:]


def _shown(token: int, piece: Piece) -> str:
    return showable(piece(token))


def _piece(token: int | None, piece: Piece) -> str:
    if token is None:
        return "the end"
    return _shown(token, piece).strip(" ") or BLANK


def _name(cause: str) -> str:
    return cause.replace("_", " ")


def _fit(column: Column, text: str) -> str:
    text = text[: column.width]
    return text.rjust(column.width) if column.right else text.ljust(column.width)
