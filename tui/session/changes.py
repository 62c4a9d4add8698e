"""Changes to a run as it goes: asked for by the screen, made in the engine's thread.

The run goes on from where it stands. A source that cannot be changed (a recorded run, or
one whose run is over) is recognised by `can_change`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from engine.config.errors import BatchspecError, UserError
from engine.config.settings import Settings
from engine.records.schema import ChangeRecord, Record
from engine.runs.worker import EngineWorker, Progress, State
from tui.session.control import Control
from tui.view.sentences import change_words

if TYPE_CHECKING:
    from engine.runs.run import Run

    Act = Callable[[Run], ChangeRecord]


@runtime_checkable
class ChangingSource(Protocol):
    """A source whose run can be changed between two rounds, in the engine's thread."""

    def intervene(self, act: Act) -> ChangeRecord: ...

    def resume(self, act: Act) -> Iterator[Record]:
        """The same after the run has ended: the change, and the rounds that come of it."""


class Message:
    """What came of a change: its words, and whether it could not be made."""

    def __init__(self, words: str, failed: bool = False) -> None:
        self.words = words
        self.failed = failed


class Changes:
    """The changes to one control's run."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self._messages: deque[Message] = deque()

    @property
    def can_change(self) -> bool:
        """Whether there is a run that goes on, and can be changed."""
        control = self.control
        return isinstance(control.source, ChangingSource) and not control.worker.state.ended

    @property
    def can_resume(self) -> bool:
        """Whether the run is over, and could go on with more to do."""
        control = self.control
        return isinstance(control.source, ChangingSource) and control.state is State.FINISHED

    def messages(self) -> list[Message]:
        """What has come of the changes since the last call."""
        found = []
        while self._messages:
            found.append(self._messages.popleft())
        return found

    def settings(self, **changes: object) -> None:
        """Other settings from the next round on.

        Raises:
            UserError: they cannot be used.
        """
        was = self.control.settings
        now = replaced(was, **changes).check()
        if now == was:
            return
        self.control.settings = now

        def act(run: Run) -> ChangeRecord:
            from engine.runs.intervene import change

            # what the run has beyond the asked-for settings (device, …) stays as it is
            return change(run, now)

        self._ask(act, lambda: self._take_back(was, now))

    def prompt(self, text: str, chat: bool | None = None) -> None:
        """One more prompt. A run that is over goes on with it."""

        def act(run: Run) -> ChangeRecord:
            from engine.runs.intervene import add_prompt

            return add_prompt(run, text, chat)

        if self.can_resume:
            self._resume(act)
        else:
            self._ask(act)

    def go_back(self, number: int) -> None:
        """Every row as it stood after this round, and on from there."""
        tracks = self.control.timeline.tracks
        lengths = {row: track.length_at(number) for row, track in tracks.items()}

        def act(run: Run) -> ChangeRecord:
            from engine.runs.intervene import go_back

            return go_back(run, lengths, number)

        self._ask(act)

    def draft_token(self, row: int, text: str) -> None:
        """What the draft is to say for a row in its next round."""

        def act(run: Run) -> ChangeRecord:
            from engine.runs.intervene import force

            return force(run, row, text)

        self._ask(act)

    def _resume(self, act: Act) -> None:
        source = self.control.source
        assert isinstance(source, ChangingSource)
        resume = source.resume

        def open_records(progress: Progress) -> Iterator[Record]:
            try:
                for record in resume(act):
                    if isinstance(record, ChangeRecord):
                        self._messages.append(Message(change_words(record)))
                    yield record
            except UserError as error:
                self._messages.append(Message(str(error), failed=True))

        self.control.go_on(open_records)

    def _take_back(self, was: Settings, now: Settings) -> None:
        if self.control.settings == now:
            self.control.settings = was

    def _ask(self, act: Act, failed: Callable[[], None] = lambda: None) -> None:
        source, worker = self.control.source, self.control.worker
        assert isinstance(source, ChangingSource)
        worker.between_rounds(lambda: self._make(source, worker, act, failed))

    def _make(
        self,
        source: ChangingSource,
        worker: EngineWorker,
        act: Act,
        failed: Callable[[], None],
    ) -> None:
        """In the engine's thread. A change that cannot be made must not end the run."""
        try:
            record = source.intervene(act)
        except BatchspecError as error:
            failed()
            self._messages.append(Message(str(error), failed=True))
        else:
            worker.add(record)
            self._messages.append(Message(change_words(record)))


def replaced(settings: Settings, **changes: object) -> Settings:
    """These settings with some changed; those of sampling are found by their names too."""
    names = settings.sampling.__struct_fields__
    sampling = {name: value for name, value in changes.items() if name in names}
    others = {name: value for name, value in changes.items() if name not in names}
    if sampling:
        others["sampling"] = msgspec.structs.replace(settings.sampling, **sampling)
    if settings.fault and others.get("method", "eqspec") != "eqspec":
        others["fault"] = ""
    return msgspec.structs.replace(settings, **others)
