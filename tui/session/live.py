"""Live runs: the models are loaded once, in the engine's thread, and run as often as wanted."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from engine.config.limits import Pace
from engine.config.settings import Settings
from engine.pairs.registry import resolve
from engine.records.schema import ChangeRecord, Prompt, Record, RunHeader, Summary
from engine.runs.worker import Progress
from tui.session.recording import Recording
from tui.session.request import AppRequest

if TYPE_CHECKING:
    from engine.evaluation.check.outputs import Foreign
    from engine.evaluation.compare import Compare, Log
    from engine.evaluation.fork import Branch
    from engine.evaluation.oracle import Oracle
    from engine.pairs.load import Pair
    from engine.runs.run import Run
    from tui.view.state.checked import Checked


class LiveSource:
    """Runs of one request's pair and prompts."""

    live = True
    needs_oracle = False
    """Whether the oracle is asked beside the single run too: a breakpoint wants to know."""

    def __init__(self, request: AppRequest) -> None:
        self.request = request
        self.name = request.pair.target or request.pair.name
        self._pair: Pair | None = None
        self._loading = threading.Lock()
        self._prompts: tuple[Prompt, ...] = ()
        self._run: Run | None = None
        self.recording = Recording(request.trace)
        self._oracle: Oracle | None = None
        self._compare: Compare | None = None

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        """A new run; the first time, the models are loaded for it."""
        pair = self._loaded(settings, progress)
        from engine.runs.run import Run

        self._run = run = Run(pair, settings, self._prompts)
        yield from self.recording.of_run(self._of_run(run, run.records()))

    def _of_run(self, run: Run, records: Iterator[Record]) -> Iterator[Record]:
        from engine.evaluation.watched_run import with_oracle
        from engine.runs.holding import holding

        return with_oracle(run, holding(run, records), lambda: self.needs_oracle, self._the_oracle)

    def _the_oracle(self) -> Oracle:
        """Of this pair; what it knows already is not computed again."""
        assert self._pair is not None
        from engine.evaluation.oracle import Oracle

        self._oracle = self._oracle or Oracle(self._pair)
        return self._oracle

    def intervene(self, act: Callable[[Run], ChangeRecord]) -> ChangeRecord:
        """Change the run between two rounds. Call in the engine's thread."""
        assert self._run is not None
        record = act(self._run)
        self._prompts = self._run.prompts
        self.recording.note(record)
        return record

    def resume(self, act: Callable[[Run], ChangeRecord]) -> Iterator[Record]:
        """Change a run that has ended, and go on with it. Call in the engine's thread."""
        run = self._run
        if run is not None:
            record = act(run)
            self._prompts = run.prompts
            records = chain([record], self._of_run(run, run.remaining()))
            yield from self.recording.of_run(records, goes_on=True)

    def lengths(self) -> dict[int, int]:
        """Committed tokens of every row, now."""
        return {} if self._run is None else self._run.lengths()

    def starts(self) -> dict[int, int]:
        """Tokens of every prompt."""
        return {prompt.index: len(prompt.ids) for prompt in self._prompts if not prompt.error}

    def switch(self, settings: Settings, lengths: Mapping[int, int] | None) -> None:
        """Let the run go on under other settings. Call in the engine's thread."""
        if self._run is not None:
            self._run.restart(settings, lengths)

    def go_on(
        self, settings: Settings, lengths: Mapping[int, int] | None, progress: Progress
    ) -> Iterator[Record]:
        """The rounds that there are now, of a run that had ended."""
        run = self._run
        if run is not None:
            run.restart(settings, lengths)
            yield from self.recording.of_run(self._of_run(run, run.remaining()), goes_on=True)

    def compare(
        self, lanes: Sequence[Settings], pace: Pace, log: Log, progress: Progress
    ) -> Iterator[Record]:
        """Several runs side by side, on the prompts and models of the run before."""
        pair = self._loaded(lanes[0], progress)
        from engine.evaluation.compare import Compare

        self._compare = compare = Compare(
            pair, lanes, self._prompts, pace=pace, oracle=self._the_oracle(), log=log
        )
        yield from self.recording.beside("compare", compare.records())

    def fork(self, branch: Branch, log: Log, progress: Progress) -> Iterator[Record]:
        """The run and another one that leaves it, side by side."""
        assert self._pair is not None, "a run is forked, and it has a pair"
        progress("the rows are prefilled again", None)
        from engine.evaluation.fork import Fork

        fork = Fork(self._pair, branch, log=log)
        yield from self.recording.beside("fork", fork.records())

    def check(self, foreign: Foreign, settings: Settings, progress: Progress) -> Checked:
        """Another engine's tokens against this pair's target. Call in an engine's thread."""
        from tui.session.check import check_settings, checked

        pair = self._loaded(settings, progress)
        chosen = check_settings(foreign, settings)
        return checked(pair, foreign, chosen, self.request.chat, progress)

    def change_lane(self, lane: int, settings: Settings) -> None:
        """Let a lane begin again. Call in the engine's thread, between two rounds."""
        if self._compare is not None:
            self._compare.change(lane, settings)

    def keep_level(self, pace: Pace) -> None:
        """What the lanes are kept level in from now on."""
        if self._compare is not None:
            self._compare.pace = pace

    def _loaded(self, settings: Settings, progress: Progress) -> Pair:
        """The pair. The first thread that asks loads it; the others wait, and may be stopped."""
        while not self._loading.acquire(timeout=0.05):
            progress("waiting for the models", None)
        try:
            return self._pair or self._load(settings, progress)
        finally:
            self._loading.release()

    def _load(self, settings: Settings, progress: Progress) -> Pair:
        from engine.pairs.hub import obtain_models

        request = self.request
        obtain_models(resolve(request.pair), progress)
        progress("importing torch", None)
        from engine.pairs.job import Workload
        from engine.pairs.load import load_pair
        from engine.text.prompts import encode_prompts

        pair = load_pair(
            request.pair,
            device=settings.device,
            dtype=settings.dtype,
            threads=settings.threads or _threads(),
            workload=Workload((settings,), request.prompts, request.chat),
            progress=progress,
        )
        progress("encoding the prompts", None)
        limit = pair.info.context  # where the draft's is shorter, rows beyond it are not drafted
        self._prompts = encode_prompts(request.prompts, pair.tokenizer, request.chat, limit)
        self._pair = pair
        # What is loaded stays: the collector need not walk through it again and again.
        gc.collect()
        gc.freeze()
        progress("prefilling the first batch", None)
        return pair

    def result(self) -> tuple[RunHeader, Summary] | None:
        """Header and summary of the last run, as far as it has come."""
        run = self._run
        return None if run is None else (run.header(), run.summary())


def _threads() -> int:
    """Leave the screen a core where there are more than two; 0: torch's own choice."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores - 1 if cores and cores > 2 else 0
