"""One run against the oracle: where each row leaves it, and why, as the records come."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from engine.evaluation.divergence import (
    Answer,
    Divergence,
    RowTrail,
    extend_trails,
    first_divergence,
)
from engine.records.schema import OracleRecord, RoundRecord


class Parting(NamedTuple):
    """The first difference of a row."""

    round: int
    """The round that committed the token, or ended the row."""
    divergence: Divergence


class OracleTrack:
    """The oracle's answer to one prompt, as far as it is known."""

    def __init__(self) -> None:
        self.output: list[int] = []
        self.gaps: list[float] = []
        self.finish_reason = ""
        self.error: str | None = None

    def answer(self, row: int) -> Answer:
        return Answer(
            index=row,
            output_ids=tuple(self.output),
            finish_reason=self.finish_reason,
            error=self.error,
            gaps=tuple(self.gaps),
        )


class OracleBook:
    """Everything that the oracle has said."""

    def __init__(self) -> None:
        self.tracks: dict[int, OracleTrack] = {}
        self.tolerance: float | None = None
        self.pieces: dict[int, str] = {}
        self.name = ""
        """Whose word it is, where not the oracle's own."""

    def taken_back(self, record: OracleRecord) -> dict[int, int]:
        """By row, the place from which on a record replaces what was said before."""
        known = {row: len(track.output) for row, track in self.tracks.items()}
        return {row.row: row.first for row in record.rows if row.first < known.get(row.row, 0)}

    def add(self, record: OracleRecord) -> list[int]:
        """Take in a record. Returns the rows that it tells of."""
        self.pieces.update(record.pieces)
        self.name = record.name
        if record.tolerance is not None:
            self.tolerance = record.tolerance
        for row in record.rows:
            track = self.tracks.setdefault(row.row, OracleTrack())
            del track.output[row.first :], track.gaps[row.first :]
            track.output.extend(row.output_ids)
            track.gaps.extend(row.gaps)
            track.finish_reason = row.finish_reason or ""
            track.error = row.error
        return [row.row for row in record.rows]


class Match:
    """How far the rows of one run agree with the oracle."""

    def __init__(self, oracle: OracleBook) -> None:
        self.oracle = oracle
        self.trails: dict[int, RowTrail] = {}
        self.partings: dict[int, Parting] = {}
        self._agreed: dict[int, int] = {}
        self._judged_with: float | None = None

    def add(self, record: RoundRecord) -> None:
        """Take in a round of the run."""
        for row in record.back:
            self._agreed.pop(row, None)
            self.partings.pop(row, None)
        extend_trails(self.trails, record)
        self.check(row.row for row in record.rows)

    def check(self, rows: Iterable[int]) -> None:
        """Compare these rows as far as both sides go."""
        for row in rows:
            trail, track = self.trails.get(row), self.oracle.tracks.get(row)
            if trail is None or track is None or row in self.partings:
                continue
            place = self._agreed.get(row, 0)
            shared = min(len(trail.output), len(track.output))
            while place < shared and trail.output[place] == track.output[place]:
                place += 1
            self._agreed[row] = place
            if place < shared or self._one_ended(trail, track, place):
                self._part(row, trail, track, place)

    def _one_ended(self, trail: RowTrail, track: OracleTrack, place: int) -> bool:
        """Whether one of the two has ended here, and the other goes on."""
        if place < len(trail.output):
            return bool(track.finish_reason)
        return trail.finish_reason is not None and place < len(track.output)

    def _part(self, row: int, trail: RowTrail, track: OracleTrack, place: int) -> None:
        tolerance = self.oracle.tolerance
        limit = math.inf if tolerance is None else tolerance
        divergence = first_divergence(trail, track.answer(row), limit, complete=False)
        if divergence is None:
            return
        at = trail.rounds[place] if place < len(trail.rounds) else trail.last_round or 0
        self.partings[row] = Parting(at, divergence)

    def measure_went_back(self, row: int, place: int) -> None:
        """The oracle's answer is another one from this place on: compare it from there again.

        Only the measure of a fork goes back, with the run whose tokens it is.
        """
        self._agreed[row] = min(place, self._agreed.get(row, 0))
        parting = self.partings.get(row)
        if parting is not None and parting.divergence.position >= place:
            del self.partings[row]

    def judge_again(self) -> None:
        """The tolerance is measured: rounding is now told from what nothing explains."""
        if self.oracle.tolerance == self._judged_with:
            return
        self._judged_with = self.oracle.tolerance
        for row, parting in list(self.partings.items()):
            if parting.divergence.cause == "numeric":
                del self.partings[row]
                self.check([row])

    def parted_at(self, row: int, number: int) -> Parting | None:
        """The row's first difference, if it lies in the rounds up to `number`."""
        parting = self.partings.get(row)
        return parting if parting is not None and parting.round <= number else None

    def parted(self, number: int) -> list[Parting]:
        """The differences up to this round, the earliest first."""
        found = [parting for parting in self.partings.values() if parting.round <= number]
        return sorted(found, key=lambda entry: (entry.round, entry.divergence.index))


def sentence(parting: Parting, tolerance: float | None, name: str = "") -> str:
    """Why the row left the oracle, or the recording of this name, in plain words."""
    found = parting.divergence
    if name and found.invariant in (None, "I5") and None in (found.got, found.expected):
        went = "ended before" if found.got is None else "goes on after"
        return f"it {went} the row of {name}, in round {parting.round}"
    if name and found.invariant is None:
        return f"it differs from the row of {name}, from round {parting.round} on"
    if found.cause == "stopped":
        return f"{found.message}, in round {parting.round}"
    if found.cause == "numeric":
        if tolerance is None:
            return f"no invariant broke; the two best tokens are {found.oracle_gap:.2g} apart"
        return f"rounding: the two best tokens are only {found.oracle_gap:.2g} apart"
    if found.invariant is None:
        return found.message
    if found.expected is None:
        return f"{found.message}, in round {parting.round}"
    message = found.message
    if found.invariant == "I5" and message.startswith("token"):
        return f"took a token that the target had not chosen, in round {found.round}"
    return f"{message}, since round {found.round}"
