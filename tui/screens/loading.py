"""The screen while the models are loaded."""

from __future__ import annotations

import time

from textual.app import ComposeResult
from textual.screen import Screen

from tui.view.lines import Line, width_of
from tui.view.showable import showable
from tui.view.state.frame import Frame
from tui.widgets.pane import Pane

BAR = 44
SPIN = "◐◓◑◒"


class LoadingPane(Pane):
    """What is being done, how far it is, and what is done already."""

    DEFAULT_CSS = "LoadingPane { overflow-y: hidden; }"

    def __init__(self, name: str, method: str) -> None:
        super().__init__()
        self._pair = showable(name)
        self._method = method
        self._began = time.monotonic()
        self._stages: list[tuple[str, float]] = []
        self._fraction: float | None = None
        self._beats = 0

    def report(self, stage: str, fraction: float | None) -> None:
        """Take the worker's latest word."""
        now = time.monotonic()
        if not self._stages or self._stages[-1][0] != stage:
            self._stages.append((stage, now))
        self._fraction = fraction
        self._beats += 1
        self.repaint()

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        bar = max(8, min(BAR, width - 8))
        body: list[Line] = [
            [("batchspec", "strong"), (" · ", "rule"), ("tui", "strong")],
            [("a microscope for batch speculative decoding", "dim")],
            [],
            [(self._pair, "text"), ("  ", "text"), (self._method.upper(), "method")],
            [],
            _bar(self._fraction, self._beats, bar),
            [],
        ]
        for place, (stage, began) in enumerate(self._stages[-5:]):
            last = place == len(self._stages[-5:]) - 1
            body.append(self._stage(stage, began, last, bar))
        block = min(bar, width)
        left = (width - block) // 2
        top = max(0, (height - len(body)) // 2 - 1)
        lines: list[Line] = [[] for _ in range(top)]
        for place, line in enumerate(body):
            indent = (width - width_of(line)) // 2 if place < 4 else left
            lines.append([(" " * max(0, indent), "text"), *line])
        return lines[:height]

    def _stage(self, stage: str, began: float, last: bool, width: int) -> Line:
        sign = SPIN[self._beats // 2 % len(SPIN)] if last else "✓"
        line: Line = [(f"{sign} ", "method" if last else "good")]
        line.append((showable(stage), "text" if last else "dim"))
        if last:
            seconds = time.monotonic() - began
            note = f"{seconds:.0f} s" if seconds >= 1.5 else ""
            if self._fraction is not None:
                note = f"{100 * self._fraction:.0f} %" + (f" · {note}" if note else "")
            line.append((" " * max(1, width - width_of(line) - len(note)) + note, "dim"))
        return line


def _bar(fraction: float | None, beats: int, width: int) -> Line:
    if fraction is None:
        size = max(3, width // 6)
        span = width - size
        at = beats % (2 * span)
        at = at if at < span else 2 * span - at
        return [
            ("─" * at, "rule"),
            ("━" * size, "method"),
            ("─" * (width - size - at), "rule"),
        ]
    full = round(max(0.0, min(1.0, fraction)) * width)
    return [("━" * full, "method"), ("─" * (width - full), "rule")]


class LoadingScreen(Screen[None]):
    """Shown until the first record is there."""

    def __init__(self, name: str, method: str) -> None:
        super().__init__()
        self.pane = LoadingPane(name, method)

    def compose(self) -> ComposeResult:
        yield self.pane
