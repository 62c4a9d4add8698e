"""The runs of the tour: live where the models are there, else from the traces that are shipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import resources

import msgspec

from engine.config.errors import BatchspecError
from engine.config.methods import BROKEN_METHODS
from engine.config.settings import Settings
from engine.pairs.registry import resolve
from engine.records.schema import Prompt, Record, RoundRecord, RunHeader, Summary
from engine.records.trace import read_trace
from engine.runs.worker import Progress
from tui.session.live import LiveSource
from tui.session.request import AppRequest
from tui.tour.scene import Answers
from tui.tour.stops import BATCH, PROMPTS

TRACES = "traces"
REFERENCE = "eqspec"
"""The method whose answers are the right ones."""

ENOUGH = 16
"""Tokens of an answer."""

FETCH = "batchspec-tui pairs fetch smollm2"

Open = Callable[[Settings], Iterator[Record]]


class Learned:
    """What a correct method has answered to each row, read off its records as they pass by."""

    def __init__(self) -> None:
        self.answers: dict[int, tuple[int, ...]] = {}

    def watch(self, settings: Settings, begin: Open) -> Iterator[Record]:
        """The records of a run. Before those of a broken method the right answers are found out,
        if they are not known yet."""
        if settings.method in BROKEN_METHODS and not self._know_enough():
            for record in begin(msgspec.structs.replace(settings, method=REFERENCE)):
                self._learn(record)
                if isinstance(record, RoundRecord) and record.left:
                    break  # the first batch is nearly done
        learning = settings.method == REFERENCE and not settings.fault and not self._know_enough()
        for record in begin(settings):
            if learning:
                self._learn(record)
            yield record

    def _know_enough(self) -> bool:
        """Whether each row of the first batch has an answer that is worth comparing with."""
        return all(len(self.answers.get(row, ())) >= ENOUGH for row in range(BATCH))

    def _learn(self, record: Record) -> None:
        if isinstance(record, RoundRecord):
            for row in record.rows:
                self.answers[row.row] = (*self.answers.get(row.row, ()), *row.committed)
        elif isinstance(record, RunHeader):
            self.answers = {}


class RecordedTour:
    """The shipped runs."""

    live = False

    def __init__(self, name: str, why: str, learned: Learned | None = None) -> None:
        self.name = name
        self.why = why
        """Why they are not live, in a few words."""
        self._learned = learned or Learned()

    @property
    def answers(self) -> Answers:
        return self._learned.answers

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        """The run of the settings' method."""
        return self._learned.watch(settings, lambda settings: recorded(settings.method))

    def result(self) -> tuple[RunHeader, Summary] | None:
        """There is nothing to be written: the runs were made before."""
        return None


class LiveTour(LiveSource):
    """Live runs of the tour's prompts; shipped ones once it shows that there can be none."""

    def __init__(self, request: AppRequest) -> None:
        super().__init__(msgspec.structs.replace(request, prompts=PROMPTS))
        self.why = ""
        self.learned = Learned()
        self._own: tuple[Prompt, ...] = ()

    @property
    def answers(self) -> Answers:
        return self.learned.answers

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        """A run of the tour."""
        try:
            if self._pair is None:
                self._load(settings, progress)
        except (BatchspecError, ImportError, OSError, MemoryError, RuntimeError) as error:
            self.why = " ".join(str(error).split()) or type(error).__name__
            return self.instead().open(settings, progress)
        # Whatever the viewer has added in between, a stop begins as it always does.
        self._own = self._prompts = self._own or self._prompts
        begin = super().open
        return self.learned.watch(settings, lambda settings: begin(settings, progress))

    def instead(self) -> RecordedTour:
        """The shipped runs, in place of these."""
        return RecordedTour(self.name, self.why, self.learned)


TourSource = LiveTour | RecordedTour


def tour_source(request: AppRequest) -> TourSource:
    """Live runs where the pair can be run here and now, without a network, or may be."""
    if resolve(request.pair).kind == "smollm2":
        from engine.pairs.smollm2 import installed_gguf, is_ready

        if not is_ready() and installed_gguf() is None:
            return RecordedTour(request.pair.name, f"no weights are here, '{FETCH}' gets them")
    return LiveTour(request)


def recorded(method: str) -> Iterator[Record]:
    """The records of a shipped run."""
    place = resources.files("tui.tour").joinpath(TRACES, f"{method}.jsonl.zst")
    with resources.as_file(place) as path:
        yield from read_trace(path)
