"""Which rows are in the batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Literal

from engine.records.row import PoolRow
from engine.rounds.layout import Layout
from engine.rounds.sequence import Sequence

RoundKind = Literal["batch", "grouped", "fallback", "slots"]


@dataclass(frozen=True)
class Chosen:
    """The rows of a round.

    Attributes:
        admit: rows that join now, and have to be prefilled first.
        rows: the rows that take part, the new ones included; None: whatever the layout
            holds once the new rows are in.
        kind: how they are batched.
        pool: rows that wait.
        starving: the row that goes first since it has waited too long.
        largest_group: rows of the largest group of one length.
    """

    admit: list[Sequence]
    rows: list[Sequence] | None = None
    kind: RoundKind = "batch"
    pool: tuple[PoolRow, ...] = ()
    starving: int | None = None
    largest_group: int = 0


class Schedule(ABC):
    """Chooses the rows of each round from a queue of prompts.

    Args:
        queue: all rows of the run, in the order of the prompts.
        batch_size: B, rows in a batch.
        window: W, rows in view (exspec).
    """

    def __init__(
        self, queue: list[Sequence], layout: Layout, *, batch_size: int, window: int
    ) -> None:
        self.queue = deque(row for row in queue if row.running)
        self.layout = layout
        self.batch_size = batch_size
        self.window = max(window, batch_size)

    @abstractmethod
    def choose(self) -> Chosen | None:
        """The rows of the next round; None when every row has ended."""

    def _take(self, count: int) -> list[Sequence]:
        return [self.queue.popleft() for _ in range(min(count, len(self.queue)))]


class FixedBatches(Schedule):
    """B prompts at a time, each batch to its end. Rows that end leave at once."""

    def choose(self) -> Chosen | None:
        if self.layout.rows:
            return Chosen(admit=[])
        admit = self._take(self.batch_size)
        return Chosen(admit=admit) if admit else None


class Continuous(Schedule):
    """Rows join as soon as a slot is free, and leave as soon as they end."""

    def choose(self) -> Chosen | None:
        admit = self._take(self.batch_size - len(self.layout.rows))
        if not admit and not self.layout.rows:
            return None
        return Chosen(admit=admit, kind="slots")
