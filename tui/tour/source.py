"""The runs of the tour: live where the models are there, else from the traces that are shipped."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

import msgspec

from engine.errors import BatchspecError
from engine.pairs.registry import resolve
from engine.records import Prompt, Record, RoundRecord, RunHeader
from engine.settings import BROKEN_METHODS, Settings
from engine.trace import read_trace
from engine.worker import Progress
from tui.live import LiveSource
from tui.request import AppRequest
from tui.tour.scene import Answers
from tui.tour.stops import BATCH, PROMPTS

TRACES = "traces"
REFERENCE = "eqspec"
"""The method whose answers are the right ones."""

ENOUGH = 16
"""Tokens of an answer."""

FETCH = "batchspec-tui pairs fetch smollm2"


class TourSource(LiveSource):
    """Live runs of the tour's prompts; the shipped traces where there are no models.

    Attributes:
        live: whether runs come from the engine.
        why: why they do not, in a few words.
    """

    def __init__(self, request: AppRequest) -> None:
        super().__init__(msgspec.structs.replace(request, prompts=PROMPTS))
        self.why = _missing(request)
        self.live = not self.why
        self._own: tuple[Prompt, ...] = ()
        self._answers: dict[int, tuple[int, ...]] = {}

    @property
    def answers(self) -> Answers:
        """What the correct method has answered so far, by row."""
        return self._answers

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        """A run of the tour."""
        if settings.method in BROKEN_METHODS and not self._know_enough():
            right = msgspec.structs.replace(settings, method=REFERENCE)
            for record in self._stream(right, progress):
                self._learn(record)
                if isinstance(record, RoundRecord) and record.left:
                    break  # the first batch is nearly done
        correct = settings.method == REFERENCE and not settings.fault
        learning = correct and not self._know_enough()
        for record in self._stream(settings, progress):
            if learning:
                self._learn(record)
            yield record

    def _stream(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        if self.live:
            try:
                if self._pair is None:
                    self._load(settings, progress)
            except (BatchspecError, ImportError, OSError, MemoryError, RuntimeError) as error:
                self.live = False
                self.why = " ".join(str(error).split()) or type(error).__name__
            else:
                # Whatever the viewer has added in between, a stop begins as it always does.
                self._own = self._prompts = self._own or self._prompts
                yield from super().open(settings, progress)
                return
        yield from recorded(settings.method)

    def _know_enough(self) -> bool:
        """Whether each row of the first batch has an answer that is worth comparing with."""
        return all(len(self._answers.get(row, ())) >= ENOUGH for row in range(BATCH))

    def _learn(self, record: Record) -> None:
        if isinstance(record, RoundRecord):
            for row in record.rows:
                self._answers[row.row] = (*self._answers.get(row.row, ()), *row.committed)
        elif isinstance(record, RunHeader):
            self._answers = {}


def recorded(method: str) -> Iterator[Record]:
    """The records of a shipped run."""
    place = resources.files("tui.tour").joinpath(TRACES, f"{method}.jsonl.zst")
    with resources.as_file(place) as path:
        yield from read_trace(path)


def _missing(request: AppRequest) -> str:
    """Why the pair cannot be run here and now, without a network; empty: it can, or may."""
    if resolve(request.pair).kind != "smollm2":
        return ""
    from engine.pairs.smollm2 import installed_gguf, is_ready

    if is_ready() or installed_gguf() is not None:
        return ""
    return f"the weights are not here, '{FETCH}' gets them"
