"""The engine's thread: it pulls records from a source and keeps them in a `History`.

The thread is a daemon of its own. It looks at its gate before each round: run,
paused, a number of steps, a speed limit, or stop. Nobody has to wait for it:
`stop` asks, and the process may end while a round is still being computed.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path

from engine.config.errors import OUT_OF_MEMORY, BatchspecError, UserError, is_out_of_memory
from engine.records.history import History
from engine.records.schema import (
    ChangeRecord,
    Failure,
    Record,
    RoundRecord,
    RunHeader,
    Summary,
    TickRecord,
)

Progress = Callable[[str, float | None], None]
"""Called while loading with the stage in words and how far it is (0 … 1, or unknown)."""

OpenRecords = Callable[[Progress], Iterator[Record]]
"""Makes the records of a run: live from the models, or from a recorded trace.

It is called in the engine's thread, so it may take its time and import what it needs."""


class _Stopped(Exception):
    """Loading was given up because the worker was stopped."""


class State(Enum):
    """What the worker is doing."""

    LOADING = "loading"
    PAUSED = "paused"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def ended(self) -> bool:
        return self in (State.FINISHED, State.FAILED, State.STOPPED)


class EngineWorker:
    """Runs one source of records in a thread and gates its rounds.

    Args:
        open_records: makes the records; called once, in the thread.
        history: where the records go.
        paused: wait before round 1.
        speed: rounds a second at most; None: as fast as it goes.
        gated: False for recorded sources, which are read to the end at once.
        log: file that a traceback is appended to.
        after: another worker whose thread must have ended before this one begins.
        watch: is shown each record; where it returns True, the rounds are held.
        known: ticks at the beginning that were made before, and are passed without holding.
    """

    def __init__(
        self,
        open_records: OpenRecords,
        history: History,
        *,
        paused: bool = False,
        speed: float | None = None,
        gated: bool = True,
        log: Path | None = None,
        after: EngineWorker | None = None,
        watch: Callable[[Record], bool] | None = None,
        known: int = 0,
    ) -> None:
        self.history = history
        self.watch = watch
        self.listener: Callable[[Record, bool], None] | None = None
        """Receives each record as it comes, and whether it holds the rounds. Called in the
        engine's thread."""
        self.stage: tuple[str, float | None] = ("starting", None)
        self.exit_code = 0
        """What the process should end with: 1 or 2 after a failure."""
        self._open = open_records
        self._gated = gated
        self._log = log
        self._after = after
        self._gate = threading.Condition()
        self._running = not paused
        self._steps = 0
        self._speed = speed
        self._stop = False
        self._ended: State | None = None
        self._loading = True
        self._round = 0
        self._lanes = 1
        self._closed: set[int] = set()
        self._finished = False
        self._known = known
        self._actions: deque[Callable[[], None]] = deque()
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def state(self) -> State:
        if self._ended is not None:
            return self._ended
        if self._loading:
            return State.LOADING
        return State.RUNNING if self._running or self._steps > 0 else State.PAUSED

    @property
    def running(self) -> bool:
        """Whether rounds are to follow one another (also while still loading)."""
        return self._running and self._ended is None

    @property
    def speed(self) -> float | None:
        return self._speed

    @speed.setter
    def speed(self, value: float | None) -> None:
        with self._gate:
            self._speed = value
            self._gate.notify_all()

    def run(self) -> None:
        """Let the rounds follow one another."""
        with self._gate:
            self._running = True
            self._gate.notify_all()

    def pause(self) -> None:
        """Hold before the next round; one that has begun is finished."""
        with self._gate:
            self._running = False
            self._steps = 0
            self._gate.notify_all()

    def step(self, count: int = 1) -> None:
        """Do `count` more rounds, then hold."""
        with self._gate:
            self._running = False
            self._steps += count
            self._gate.notify_all()

    def between_rounds(self, action: Callable[[], None]) -> None:
        """Call `action` in the engine's thread before the next round."""
        self._actions.append(action)
        with self._gate:
            self._gate.notify_all()

    def stop(self, timeout: float = 0.0) -> bool:
        """Ask the thread to end, and wait for it `timeout` seconds at most.

        Returns:
            Whether it has ended.
        """
        with self._gate:
            self._stop = True
            self._gate.notify_all()
        if timeout > 0.0 and self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        records: Iterator[Record] | None = None
        try:
            if self._after is not None:
                self._after._thread.join()
                self._after = None
            if self._stop:
                return
            records = self._open(self._report)
            self._pull(records)
        except BaseException as error:
            if not self._stop:
                self._fail(error)
        finally:
            close = getattr(records, "close", None)
            if close is not None:
                try:
                    close()
                except Exception:
                    self._write_log(traceback.format_exc())
            if self._ended is None:
                self._ended = State.STOPPED

    def _pull(self, records: Iterator[Record]) -> None:
        last: Record | None = None
        began = time.monotonic()
        for record in records:
            self.add(record)
            if isinstance(record, ChangeRecord) and record.held:
                self.pause()
            self._loading = False
            if isinstance(record, RunHeader):
                self._lanes = record.lanes
                self._closed.discard(record.lane)
            elif isinstance(record, Summary | Failure):
                self._close_lane(record)
            elif isinstance(record, RoundRecord):
                self._round = record.round
            last = record
            if self._stop or not self._may_go_on(last, began):
                return
            if self._lanes == 1 or self._is_step(last):
                began = time.monotonic()
        if self._ended is None:
            self._ended = State.FINISHED

    def add(self, record: Record) -> None:
        """Keep a record and show it around. Call in the engine's thread, between two rounds."""
        self.history.append(record)
        held = self.watch is not None and self.watch(record)
        if held:
            self.pause()
        if self.listener is not None:
            self.listener(record, held)

    def _close_lane(self, record: Summary | Failure) -> None:
        """The worker has ended when every lane has: it failed if none came to its end."""
        self._closed.add(record.lane)
        self._finished = self._finished or isinstance(record, Summary)
        if len(self._closed) >= self._lanes:
            self._ended = State.FINISHED if self._finished else State.FAILED

    def _is_step(self, record: Record) -> bool:
        """A step is a round, or in a comparison a tick: a round or more of every lane."""
        if self._lanes > 1:
            return isinstance(record, TickRecord) and record.tick > 0
        return isinstance(record, RoundRecord)

    def _is_passed(self, record: Record) -> bool:
        """Whether there is no holding after this record: a step is not to be spent on a summary."""
        if self._known:
            if isinstance(record, TickRecord) and record.tick >= self._known:
                self._known = 0
            else:
                return True
        if self._lanes > 1:
            return not isinstance(record, RoundRecord | TickRecord)
        return isinstance(record, RoundRecord) and record.is_last

    def _may_go_on(self, last: Record, began: float) -> bool:
        """Wait at the gate. False when the worker was stopped."""
        if not self._gated or self._ended is not None or self._is_passed(last):
            return not self._stop
        is_round = self._is_step(last)
        with self._gate:
            if is_round and self._steps > 0:
                self._steps -= 1
            while not self._stop:
                while self._actions:
                    self._actions.popleft()()
                if self._steps > 0:
                    return True
                if not self._running:
                    self._gate.wait()
                    continue
                left = self._time_left(began) if is_round else 0.0
                if left <= 0.0:
                    return True
                self._gate.wait(left)
        return False

    def _time_left(self, began: float) -> float:
        if not self._speed:
            return 0.0
        return began + 1.0 / self._speed - time.monotonic()

    def _report(self, stage: str, fraction: float | None = None) -> None:
        """Loading calls this; it ends here when the worker was stopped, and clears up."""
        self.stage = (stage, fraction)
        if self._stop:
            raise _Stopped

    def _fail(self, error: BaseException) -> None:
        # A user's mistake needs one line; its traceback would help nobody.
        log = None if isinstance(error, UserError) else self._log
        if log is not None:
            self._write_log(traceback.format_exc())
        self.exit_code = 1
        if isinstance(error, BatchspecError):
            self.exit_code = error.exit_code
            message = str(error)
        elif is_out_of_memory(error):
            message = OUT_OF_MEMORY
        else:
            message = f"{type(error).__name__}: {error}".rstrip(": ")
        where = str(log) if log is not None else ""
        lane = 0 if self._lanes == 1 else -1
        self.history.append(Failure(lane=lane, message=message, round=self._round, log=where))
        self._ended = State.FAILED

    def _write_log(self, text: str) -> None:
        if self._log is None:
            return
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("a", encoding="utf-8", errors="replace") as file:
                file.write(time.strftime("%Y-%m-%d %H:%M:%S\n") + text + "\n")
        except OSError:
            return
