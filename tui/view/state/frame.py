"""What every pane is given: a lane, a cursor, and the viewer's choices."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from engine.records.schema import RoundRecord
from tui.view.state.cursor import LAST, Cursor, Phase
from tui.view.state.timeline import Timeline


class CellMode(Enum):
    """What the cells of the tensor show."""

    TOKEN = "token"
    POSITION = "position"
    SLOT = "slot"
    MASK = "mask"

    @property
    def title(self) -> str:
        return _TITLES[self]

    def next(self) -> CellMode:
        modes = list(CellMode)
        return modes[(modes.index(self) + 1) % len(modes)]


_TITLES = {
    CellMode.TOKEN: "tokens",
    CellMode.POSITION: "position IDs fed",
    CellMode.SLOT: "KV slots",
    CellMode.MASK: "attention mask",
}


START = Cursor()


@dataclass(frozen=True)
class Frame:
    """One moment of one lane. Every pane is a function of a frame."""

    timeline: Timeline = field(default_factory=Timeline)
    cursor: Cursor = START
    selected: int | None = None
    """Request index of the row that is looked at."""
    mode: CellMode = CellMode.TOKEN
    slide: float = 1.0
    """How far the rows have moved from their old columns to the new ones, 0 … 1."""
    animated: bool = False
    """Whether the phases are being shown one after the other."""

    busy: bool = False
    """Whether the engine is at work on the next round."""

    fault_next: str | None = None
    """The fault of the lab under which a live run goes on, "" for none; None: the records are
    all that is known."""

    @property
    def record(self) -> RoundRecord | None:
        return self.timeline.round_at(self.cursor.round)

    @property
    def method(self) -> str:
        """The method of the round that is looked at; before round 1, of the first."""
        return self.timeline.method_at(max(1, self.cursor.round))

    def setting(self, name: str, default: object = None) -> object:
        """A setting as it was in that round."""
        return self.timeline.setting_at(max(1, self.cursor.round), name, default)

    @property
    def committed_round(self) -> int:
        """The last round whose tokens are committed at this cursor."""
        number, phase = self.cursor
        return number if phase >= Phase.ACCEPT else max(0, number - 1)

    @property
    def settled(self) -> bool:
        return self.cursor.phase is LAST
