"""The help: every key, from the registry, and what the signs mean."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from tui.view.lines import Line, crop, wrap
from tui.view.state.frame import Frame
from tui.widgets.keys import groups
from tui.widgets.pane import Pane
from tui.widgets.section import Heading

LEGEND = (
    ("prompt", "the", "the prompt"),
    ("committed", "the", "committed in an earlier round"),
    ("drafted", "?the", "drafted by the draft, not yet verified"),
    ("accepted", "✓the", "accepted in this round"),
    ("bonus", "★the", "the bonus: the target's own token"),
    ("rejected", "✗the", "rejected"),
    ("pad", "·", "padding"),
    ("stale", "~the", "stale: K/V of no committed token"),
    ("ghost", "≈the", "ghost: counts as valid, but is not the row's own"),
    ("diverged", "≠the", "in a comparison: the row's first token that is not the oracle's"),
)

FIGURES = (
    ("pad", "padding of the row, p"),
    ("c", "its content length: all committed tokens"),
    ("δ", "columns by which its state moved in this round"),
    ("kv", "cache slots that hold committed tokens (c − 1)"),
    ("pos", "position IDs of the content, first and last"),
    ("L", "length of the rectangle: p + c for every row"),
    ("⋔", "in a fork: where the lanes part"),
)


def help_lines(width: int) -> list[Line]:
    """The whole help, in two columns where there is room."""
    left = _keys(width if width < 90 else width // 2 - 2)
    right = _signs(width if width < 90 else width // 2 - 2)
    if width < 90:
        return [*left, [], *right]
    lines: list[Line] = []
    half = width // 2
    for place in range(max(len(left), len(right))):
        first = left[place] if place < len(left) else []
        second = right[place] if place < len(right) else []
        lines.append([*crop(first, half), *second])
    return lines


def _keys(width: int) -> list[Line]:
    lines: list[Line] = []
    for group, keys in groups().items():
        if lines:
            lines.append([])
        lines.append([(group, "method")])
        for key in keys:
            words = wrap([(key.help, "text")], max(10, width - 10))
            for place, line in enumerate(words):
                head = key.shown if place == 0 else ""
                lines.append([(f"{head:<8}  ", "key"), *line])
    lines.append([])
    lines += wrap([("Digits before a key repeat it: 10n is ten rounds.", "dim")], width)
    return lines


def _signs(width: int) -> list[Line]:
    lines: list[Line] = [[("Cells", "method")]]
    for kind, sample, words in LEGEND:
        cell = [(f"{sample:^7}", f"cell-{kind}"), ("   ", "text")]
        for place, line in enumerate(wrap([(words, "text")], max(10, width - 10))):
            lines.append([*(cell if place == 0 else [(" " * 10, "text")]), *line])
    lines += [[], [("Figures", "method")]]
    for name, words in FIGURES:
        for place, line in enumerate(wrap([(words, "text")], max(10, width - 10))):
            lines.append([(f"{name if place == 0 else '':<10}", "strong"), *line])
    lines += [[], [("Invariants", "method")]]
    for name, words in (
        ("I1", "rectangle: p + c = L for every row, the smallest p is 0"),
        ("I2", "positions: 0, 1, 2, … without hole or repeat"),
        ("I3", "cache: exactly the committed tokens but the last"),
        ("I4", "mask: each query sees its row's content up to itself"),
        ("I5", "commit: every token is the target's own choice"),
    ):
        for place, line in enumerate(wrap([(words, "text")], max(10, width - 10))):
            lines.append([(f"{name if place == 0 else '':<10}", "strong"), *line])
    return lines


class HelpPane(Pane):
    can_focus = True

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        return help_lines(width)


class HelpScreen(ModalScreen[None]):
    """Over the main screen; any of its keys closes it."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen > Vertical {
        width: 90%; max-width: 116; height: 90%; max-height: 46;
        background: $background; border: round $line-rule; padding: 0 2;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,space", "close", "close"),
    ]

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Heading([("help", "title")])
            yield HelpPane()

    def on_mount(self) -> None:
        self.query_one(Heading).set(note=[(" esc closes ", "dim")])
        self.query_one(HelpPane).focus()

    def action_close(self) -> None:
        self.dismiss()
