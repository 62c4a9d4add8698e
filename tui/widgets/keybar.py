"""The keys at the foot of the screen, as many as fit, each of them clickable."""

from __future__ import annotations

from textual import events

from tui.view.lines import Line, crop
from tui.view.state.frame import Frame
from tui.widgets.keys import KEYS, Key, footer
from tui.widgets.pane import Pane


class KeyBar(Pane):
    """Made from the key registry: neighbours with one label share it."""

    DEFAULT_CSS = "KeyBar { height: 1; overflow-y: hidden; }"

    def __init__(self, where: str = "main") -> None:
        super().__init__()
        self._entries = footer(where)
        self._places: list[tuple[int, int, str]] = []
        """Where each key is: first and last column, and its action."""

    def paint(self, frame: Frame, width: int, height: int) -> list[Line]:
        entries = self._entries
        last = entries[-2:]
        line, at, self._places = [(" ", "text")], 1, []
        for spacing in (3, 2):
            need = 1 + sum(_size(entries, place, spacing) for place in range(len(entries)))
            if need <= width:
                break
        room = width - sum(_size(last, place, spacing) for place in range(len(last)))
        for place, key in enumerate(entries):
            size = _size(entries, place, spacing)
            follower = place + 1 < len(entries) and entries[place + 1].label == key.label
            unit = size + (_size(entries, place + 1, spacing) if follower else 0)
            if key not in last and at + unit > room:
                room = 0
                continue
            self._places.append((at, at + size, key.action))
            line.append((key.shown, "key"))
            if follower:
                line.append((" ", "text"))
            else:
                line.append((f" {key.label}" + " " * spacing, "dim"))
            at += size
        return [crop(line, width)]

    def on_click(self, event: events.Click) -> None:
        for begin, end, action in self._places:
            if begin <= event.x < end:
                self.call_later(self.run_action, _action(action))
                return


def _size(entries: list[Key], place: int, spacing: int) -> int:
    key = entries[place]
    if place + 1 < len(entries) and entries[place + 1].label == key.label:
        return len(key.shown) + 1
    return len(key.shown) + 1 + len(key.label) + spacing


def _action(action: str) -> str:
    where = next(key.where for key in KEYS if key.action == action)
    return f"{'app' if where == 'app' else 'screen'}.{action}"
