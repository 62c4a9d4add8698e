"""Where in a run a stop's claim is best seen: functions of the records, and of nothing else.

Each looks at the first rounds of a run and returns the spot, or None where the run does
not show it. More rounds than were needed never move a spot that was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.records.row import RowRound
from engine.records.schema import RoundRecord
from tui.tour.scene import Answers, Spot, first_difference, spot
from tui.view.state.cursor import Phase
from tui.view.state.timeline import Timeline

Find = Callable[[Timeline, Answers], Spot | None]

EARLY = range(2, 13)
"""Rounds that are looked through for the clearest example."""

LATER = range(8, 13)
"""Where an example says more when some rounds have passed."""


POOLED = range(2, 17)
"""Rounds that are looked through for groups, which take a while to form."""


def _rounds(timeline: Timeline, numbers: range) -> Iterator[tuple[int, RoundRecord]]:
    for number in numbers:
        record = timeline.round_at(number)
        if record is not None and record.rows:
            yield number, record


def _going_on(record: RoundRecord) -> bool:
    """Whether no row ends in this round: its end would be the more striking thing."""
    return not any(row.finish_reason for row in record.rows)


def at_round(number: int) -> Find:
    """So far into the run, or at its end where that comes first."""

    def find(timeline: Timeline, answers: Answers) -> Spot | None:
        place = min(number, timeline.last)
        record = timeline.round_at(place)
        return spot(place, record.rows[0].row) if record is not None and record.rows else None

    return find


def is_verified(row: RowRound) -> bool:
    """Whether some of the row's draft tokens were accepted, some not, and the bonus came on top."""
    return (
        0 < row.accepted < len(row.draft_token_ids)
        and row.bonus is not None
        and len(row.committed) == row.accepted + 1
    )


def verified(phase: Phase) -> Find:
    """The row with the longest accepted prefix that still has a rejected token."""

    def find(timeline: Timeline, answers: Answers) -> Spot | None:
        best: tuple[int, int, int] | None = None
        for number, record in _rounds(timeline, EARLY):
            for row in record.rows:
                if (
                    is_verified(row)
                    and _going_on(record)
                    and (best is None or row.accepted > best[0])
                ):
                    best = (row.accepted, number, row.row)
        return spot(best[1], best[2], phase) if best else None

    return find


def most_ragged(timeline: Timeline, answers: Answers) -> Spot | None:
    """The round in which the rows' gains differ most, before anything is repaired."""
    found = _most_ragged(timeline)
    return spot(*found, Phase.ACCEPT) if found else None


def realigned(timeline: Timeline, answers: Answers) -> Spot | None:
    """The same round with its rows moved: the row that moved furthest."""
    found = _most_ragged(timeline)
    record = timeline.round_at(found[0]) if found else None
    if record is None:
        return None
    row = max(record.rows, key=lambda row: abs(row.delta))
    return spot(found[0], row.row) if found and row.delta else None


def _most_ragged(timeline: Timeline) -> tuple[int, int] | None:
    best: tuple[int, int, int] | None = None
    for number, record in _rounds(timeline, EARLY):
        if not _going_on(record) or len(record.rows) < 2:
            continue
        gains = [len(row.committed) for row in record.rows]
        wide = max(gains) - min(gains)
        if wide and (best is None or wide > best[0]):
            best = (wide, number, record.rows[gains.index(max(gains))].row)
    return (best[1], best[2]) if best else None


def holes(row: RowRound) -> int:
    """Dead cells between the row's committed tokens."""
    count = inside = 0
    for span in row.kept:
        if span.kind == "content":
            count += inside
            inside = 0
        elif count or any(other.kind == "content" for other in row.kept):
            inside += span.length if span.kind == "stale" else 0
    return count


def first_hole(timeline: Timeline, answers: Answers) -> Spot | None:
    """The first dead cell in the middle of a row, best in one that has no padding beside it."""
    found: Spot | None = None
    for number, record in _rounds(timeline, EARLY):
        for row in sorted(record.rows, key=lambda row: row.padding):
            if holes(row) and not row.padding:
                return spot(number, row.row)
            if holes(row) and found is None:
                found = spot(number, row.row)
    return found


def first_breach(*invariants: str) -> Find:
    """The first round in which a row breaks one of these invariants, best one that has no
    padding: what is wrong is then not the padding's doing."""

    def find(timeline: Timeline, answers: Answers) -> Spot | None:
        found: Spot | None = None
        for number, record in _rounds(timeline, EARLY):
            broken = {entry.row for entry in record.violations if entry.invariant in invariants}
            for row in sorted(record.rows, key=lambda row: row.padding):
                if row.row in broken and not row.padding:
                    return spot(number, row.row)
                if row.row in broken and found is None:
                    found = spot(number, row.row)
        return found

    return find


def first_rubbish(timeline: Timeline, answers: Answers) -> Spot | None:
    """The first row of those whose text is wrong, when that can be read."""
    wrong = [
        found
        for row in timeline.tracks
        if (found := first_difference(timeline, answers, row)) is not None
    ]
    if not wrong:
        return None
    early = [found for found in wrong if found.round < EARLY.stop]
    first = early[0] if early else min(wrong, key=lambda found: (found.round, found.row))
    rounds = timeline.tracks[first.row].rounds
    return spot(max(n for n in rounds if n in EARLY or n == first.round), first.row)


def wasted(record: RoundRecord) -> int:
    """Padding that every row has: the rectangle would be a rectangle without it."""
    return min((row.padding for row in record.rows), default=0)


def piled_up(timeline: Timeline, answers: Answers) -> Spot | None:
    """Padding that no row needs, once there is enough of it to be seen."""
    worst: tuple[int, int] | None = None
    for number, record in _rounds(timeline, EARLY):
        if _going_on(record) and wasted(record) and (not worst or wasted(record) >= worst[0]):
            worst = (wasted(record), number)
    if worst is None:
        return None
    rows = timeline.rounds[worst[1] - 1].rows
    return spot(worst[1], max(rows, key=lambda row: row.padding).row)


def wrong_bonus(timeline: Timeline, answers: Answers) -> Spot | None:
    """A rejected draft token that is committed in the bonus's place."""
    for number, record in _rounds(timeline, EARLY):
        broken = {entry.row for entry in record.violations if entry.invariant == "I5"}
        for row in record.rows:
            rejected = row.draft_token_ids[row.accepted : row.accepted + 1]
            if row.row in broken and row.bonus is not None and rejected == (row.bonus,):
                return spot(number, row.row)
    return None


def grouped(timeline: Timeline, answers: Answers) -> Spot | None:
    """Rows of one length that run together as they are: the largest group, if there is one
    among the first rounds, else the first."""
    best: tuple[int, int, int] | None = None
    for number, record in _rounds(timeline, range(2, timeline.last + 1)):
        if best is not None and number not in POOLED:
            break
        size, lengths = len(record.rows), {row.before for row in record.rows}
        if record.kind == "grouped" and len(lengths) == 1 and size > (best[0] if best else 1):
            best = (size, number, record.rows[0].row)
    return spot(best[1], best[2]) if best else None


def fallback(timeline: Timeline, answers: Answers) -> Spot | None:
    """Rows of different lengths that are padded, for want of a group."""
    for first in (LATER.start, EARLY.start):
        for number, record in _rounds(timeline, range(first, timeline.last + 1)):
            shortest = min(record.rows, key=lambda row: row.before)
            if record.kind == "fallback" and len({row.before for row in record.rows}) > 1:
                return spot(number, shortest.row)
    return None


def stale_tail(timeline: Timeline, answers: Answers) -> Spot | None:
    """Slots of different lengths, one of them with rejected K/V behind its end."""
    for numbers in (LATER, EARLY):
        best: tuple[int, int, int] | None = None
        for number, record in _rounds(timeline, numbers):
            row = max(record.rows, key=stale)
            if _going_on(record) and stale(row) and (best is None or stale(row) > best[0]):
                best = (stale(row), number, row.row)
        if best is not None:
            return spot(best[1], best[2])
    return None


def stale(row: RowRound) -> int:
    return sum(span.length for span in row.kept if span.kind == "stale")


def joined(timeline: Timeline, answers: Answers) -> Spot | None:
    """A row that takes the place of one that has ended."""
    for number, record in _rounds(timeline, range(2, timeline.last + 1)):
        admitted = [row.row for row in record.rows if row.row in record.admitted]
        if admitted:
            return spot(number, admitted[0])
    return None
