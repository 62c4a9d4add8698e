"""One lane's records, indexed as they come, so that any cursor is cheap to look at.

Every index only grows: a row keeps the rounds it took part in and how long it
and its text were after each, a lane keeps running sums. The state at a round is
then a binary search and a slice, never a replay.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.records.schema import (
    ChangeRecord,
    Failure,
    LaneRecord,
    PairInfo,
    Phases,
    Prompt,
    RoundRecord,
    RunHeader,
    Summary,
)
from engine.records.violation import Violation
from tui.view.showable import showable
from tui.view.state.completed import completed
from tui.view.state.store import RoundStore
from tui.view.state.track import RowTrack

BLANK = "␣"
"""A space, where a token is nothing else."""


class Timeline:
    """Everything that the screen knows of one lane."""

    def __init__(self, lane: int = 0) -> None:
        self.lane = lane
        self.header: RunHeader | None = None
        self.rounds = RoundStore()
        self.costs: list[Phases] = []
        """Seconds by phase of each round."""
        self.kinds: list[str] = []
        """How each round was put together."""
        self.spreads: list[int] = []
        """How far apart the rows of each round came: most minus fewest committed tokens."""
        self.tracks: dict[int, RowTrack] = {}
        self.summary: Summary | None = None
        self.failure: Failure | None = None
        self.revision = 0
        self.changes: list[ChangeRecord] = []
        self.breaks: list[tuple[int, Violation]] = []
        """First appearance of each broken invariant of each row, with its round."""
        self._broken: set[tuple[str, int | None]] = set()
        self._pieces: dict[int, str] = {}
        self._shown: dict[int, str] = {}
        self._seconds: list[float] = [0.0]
        self._realign: list[float] = [0.0]
        self._tokens: list[int] = [0]
        self._accepted: list[int] = [0]
        self._row_rounds: list[int] = [0]
        self._drafted: list[int] = [0]
        self._bytes: list[int] = [0]
        self._finished: list[int] = [0]
        self._histogram: list[list[int]] = [[]]

    @property
    def last(self) -> int:
        """Number of the newest round."""
        return len(self.rounds)

    @property
    def method(self) -> str:
        return self.header.method if self.header else ""

    @property
    def pair(self) -> PairInfo:
        return self.header.pair if self.header else PairInfo()

    def setting(self, name: str, default: object = None) -> object:
        return self.header.settings.get(name, default) if self.header else default

    def add(self, record: LaneRecord) -> None:
        """Take in one record of this lane."""
        self.revision += 1
        if isinstance(record, RunHeader):
            self.header = record
            self._pieces.update(record.pieces)
            for prompt in record.prompts:
                self.tracks[prompt.index] = RowTrack(prompt)
        elif isinstance(record, RoundRecord):
            self._add_round(record)
        elif isinstance(record, ChangeRecord):
            self._add_change(record)
        elif isinstance(record, Summary):
            self.summary = record
        else:
            self.failure = record

    def _add_change(self, record: ChangeRecord) -> None:
        self._pieces.update(record.pieces)
        self.changes.append(record)
        for prompt in record.prompts:
            self.tracks[prompt.index] = RowTrack(prompt)

    @property
    def held(self) -> ChangeRecord | None:
        """The record with which the run holds by itself, until it goes on or is changed."""
        last = self.changes[-1] if self.changes else None
        return last if last is not None and last.held and last.round == self.last else None

    def _in_force(self, number: int) -> Iterator[ChangeRecord]:
        """The changes that were made before round `number` began, the latest first."""
        return (change for change in reversed(self.changes) if change.round < number)

    def method_at(self, number: int) -> str:
        """The method of round `number`."""
        return next((c.method for c in self._in_force(number) if c.settings), self.method)

    def setting_at(self, number: int, name: str, default: object = None) -> object:
        """A setting as it was in round `number`."""
        settings = next((c.settings for c in self._in_force(number) if c.settings), None)
        return self.setting(name, default) if settings is None else settings.get(name, default)

    def _add_round(self, record: RoundRecord) -> None:
        self._pieces.update(record.pieces)
        number = len(self.rounds) + 1
        tokens = accepted = drafted = finished = 0
        histogram = list(self._histogram[-1])
        for row_index, length in record.back.items():
            if row_index in self.tracks:
                gone = self.tracks[row_index]
                finished -= gone.finished_at(number)
                gone.go_back(number, length)
        for row in record.rows:
            if row.text and row.row in self.tracks:
                self.tracks[row.row].has_text = True
        record = completed(record, self.tracks, self._pieces.get)
        self.rounds.append(record)
        for row in record.rows:
            track = self.tracks.get(row.row)
            if track is None:
                track = self.tracks[row.row] = RowTrack(Prompt(index=row.row, ids=()))
            before = track.finished_at(number)
            track.add(number, row)
            tokens += len(row.committed)
            accepted += row.accepted
            drafted += len(row.draft_token_ids)
            finished += track.finished_at(number) - before
            while len(histogram) <= row.accepted:
                histogram.append(0)
            histogram[row.accepted] += 1
        lengths = [len(row.committed) for row in record.rows]
        self.spreads.append(max(lengths) - min(lengths) if lengths else 0)
        self.kinds.append(record.kind)
        self.costs.append(record.seconds)
        seconds = record.seconds
        self._seconds.append(self._seconds[-1] + seconds.total)
        self._realign.append(self._realign[-1] + seconds.realign)
        self._tokens.append(self._tokens[-1] + tokens)
        self._accepted.append(self._accepted[-1] + accepted)
        self._drafted.append(self._drafted[-1] + drafted)
        self._row_rounds.append(self._row_rounds[-1] + len(record.rows))
        self._bytes.append(self._bytes[-1] + record.realign_bytes)
        self._finished.append(self._finished[-1] + finished)
        self._histogram.append(histogram)
        for violation in record.violations:
            key = (violation.invariant, violation.row)
            if key not in self._broken:
                self._broken.add(key)
                self.breaks.append((number, violation))

    def round_at(self, number: int) -> RoundRecord | None:
        """The record of round `number`; None for round 0 and beyond the end."""
        return self.rounds[number - 1] if 1 <= number <= len(self.rounds) else None

    def phases_at(self, number: int) -> Phases:
        record = self.round_at(number)
        return record.seconds if record else Phases()

    def _clamp(self, number: int) -> int:
        return max(0, min(number, len(self.rounds)))

    def seconds_at(self, number: int) -> float:
        """Decoding seconds up to and with this round."""
        return self._seconds[self._clamp(number)]

    def tokens_at(self, number: int) -> int:
        return self._tokens[self._clamp(number)]

    def accepted_at(self, number: int) -> float:
        """Mean accepted tokens of a row in a round."""
        place = self._clamp(number)
        rounds = self._row_rounds[place]
        return self._accepted[place] / rounds if rounds else 0.0

    def realign_share_at(self, number: int) -> float:
        place = self._clamp(number)
        seconds = self._seconds[place]
        return self._realign[place] / seconds if seconds else 0.0

    def bytes_at(self, number: int) -> int:
        return self._bytes[self._clamp(number)]

    def finished_at(self, number: int) -> int:
        return self._finished[self._clamp(number)]

    def histogram_at(self, number: int) -> list[int]:
        """How often 0, 1, 2, … draft tokens of a row were accepted."""
        return self._histogram[self._clamp(number)]

    def speed_at(self, number: int, over: int = 20) -> float:
        """Tokens a second over the last `over` rounds."""
        place = self._clamp(number)
        begin = max(0, place - over)
        seconds = self._seconds[place] - self._seconds[begin]
        return (self._tokens[place] - self._tokens[begin]) / seconds if seconds > 0 else 0.0

    def piece(self, token: int) -> str:
        """The token's text, safe to show."""
        shown = self._shown.get(token)
        if shown is None:
            text = self._pieces.get(token)
            if text is None:
                return f"⟨{token}⟩"
            shown = showable(text)
            if text and not shown.strip(" "):
                shown = BLANK * len(shown)
            self._shown[token] = shown
        return shown

    def token_at(self, row: int, index: int, number: int) -> int | None:
        """A row's token as round `number` sees it."""
        track = self.tracks.get(row)
        if track is None:
            return None
        tokens = track.tokens_at(number)
        return tokens[index] if 0 <= index < len(tokens) else None
