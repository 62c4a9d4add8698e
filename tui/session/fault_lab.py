"""The fault lab's hold on a run: one thing done wrong, switched on and off as it goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Protocol, runtime_checkable

import msgspec

from engine.config.settings import Settings
from engine.records.schema import Record
from engine.runs.worker import EngineWorker, Progress
from tui.session.control import Control

METHOD = "eqspec"
"""The method whose faults these are."""


@runtime_checkable
class RestartingSource(Protocol):
    """A source whose run can go on under other settings, or from an earlier moment.

    All of these are called in the engine's thread, between two rounds.
    """

    def lengths(self) -> dict[int, int]:
        """Committed tokens of every row, now."""

    def starts(self) -> dict[int, int]:
        """Tokens of every prompt."""

    def switch(self, settings: Settings, lengths: Mapping[int, int] | None) -> None:
        """Go on under these settings, from these lengths if given."""

    def go_on(
        self, settings: Settings, lengths: Mapping[int, int] | None, progress: Progress
    ) -> Iterator[Record]:
        """The same after the run has ended: the rounds that there are now, and the summary."""


class FaultLab:
    """Switches faults, and knows where the rows stood before the first went on."""

    def __init__(self, control: Control, source: RestartingSource) -> None:
        self.control = control
        self.source = source
        self._before: dict[int, int] | None = None
        self._worker: EngineWorker | None = None
        """The one that `_before` was noted for."""

    @property
    def fault(self) -> str:
        """The fault that is on, or is to go on before the next round."""
        return self.control.settings.fault

    def can_switch(self) -> bool:
        """Whether the run can go on under a fault: it is eqspec's, and not over."""
        settings = self.control.settings
        over = self.control.worker.state.ended
        return settings.method == METHOD and not settings.strict and not (over and not self.fault)

    def switch(self, name: str) -> None:
        """Switch a fault on; or off, if it is on: the run goes back to before.

        From one fault to another it goes back as well: each is seen by itself.
        """
        control = self.control
        fault = "" if name == self.fault else name
        settings = msgspec.structs.replace(control.settings, fault=fault).check()
        went_on = bool(control.settings.fault)
        if self._worker is not control.worker:
            self._before = None
        control.settings = settings
        if not control.worker.state.ended:
            self._worker = control.worker
            control.worker.between_rounds(partial(self._switch, settings, went_on))
            return
        lengths = self._before
        control.go_on(partial(self._go_on, settings, lengths))
        self._worker = control.worker
        self._before = lengths if fault else None

    def _switch(self, settings: Settings, went_on: bool) -> None:
        """In the engine's thread."""
        lengths = None
        if went_on:
            lengths = self.source.starts() if self._before is None else self._before
        else:
            self._before = self.source.lengths()
        self.source.switch(settings, lengths)
        if went_on:
            self._before = lengths if settings.fault else None

    def _go_on(
        self, settings: Settings, lengths: dict[int, int] | None, progress: Progress
    ) -> Iterator[Record]:
        kept = self.source.starts() if lengths is None else lengths
        return self.source.go_on(settings, kept, progress)
