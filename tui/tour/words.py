"""What the stops say. Every figure is read from the records of the scene.

A sentence is a template; what is filled in stands out. Templates hold no figures.
"""

from __future__ import annotations

from string import Formatter

from engine.records.violation import Violation
from tui.tour.finds import holes, stale, wasted
from tui.tour.scene import Scene, first_difference
from tui.view.lines import Line
from tui.view.sentences import violation_words
from tui.view.showable import showable

LONGEST = 28
"""Characters of a quotation at most."""


def line(template: str, **figures: object) -> Line:
    """The template as a line; a figure is a value, or a value and its style."""
    line: Line = []
    for text, name, _, _ in Formatter().parse(template):
        if text:
            line.append((text, "text"))
        if name is not None:
            value = figures[name]
            shown, style = value if isinstance(value, tuple) else (value, "strong")
            line.append((str(shown), style))
    return line


def rows_named(rows: list[int]) -> str:
    """2, or 2 and 3, or 2, 3 and 5."""
    names = [str(row) for row in sorted(rows)]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def counted(count: int, noun: str, nouns: str = "") -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {nouns or noun + 's'}"


def quoted(scene: Scene, *tokens: int) -> str:
    """The tokens' text, cut where it is long."""
    text = scene.pieces(tokens)
    return text if len(text) <= LONGEST else text[: LONGEST - 2] + "…”"


def amount(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def one_token(scene: Scene) -> Line:
    record = scene.record
    gained = sum(len(row.committed) for row in record.rows)
    return line(
        "In step {step} the whole model was read once, and {rows} gained {gained}.",
        step=scene.number,
        rows=counted(len(record.rows), "row"),
        gained=(counted(gained, "token"), "bonus"),
    )


def drafted(scene: Scene) -> Line:
    row = scene.row
    return line(
        "For row {row} it says {guess}: {count}.",
        row=row.row,
        guess=(quoted(scene, *row.draft_token_ids), "drafted"),
        count=counted(len(row.draft_token_ids), "token"),
    )


def verified(scene: Scene) -> Line:
    row = scene.row
    return line(
        "In row {row} it agrees with {accepted} of {count}, and would not have said {wrong}.",
        row=row.row,
        accepted=(row.accepted, "accepted"),
        count=len(row.draft_token_ids),
        wrong=(quoted(scene, row.draft_token_ids[row.accepted]), "rejected"),
    )


def landed(scene: Scene) -> Line:
    row = scene.row
    assert row.bonus is not None
    return line(
        "Row {row} keeps {accepted} and adds {bonus}: {gained} for one reading of the target.",
        row=row.row,
        accepted=(row.accepted, "accepted"),
        bonus=(quoted(scene, row.bonus), "bonus"),
        gained=counted(len(row.committed), "token"),
    )


def ragged(scene: Scene) -> Line:
    rows = scene.record.rows
    gains = [len(row.committed) for row in rows]
    most, least = rows[gains.index(max(gains))], rows[gains.index(min(gains))]
    return line(
        "Row {most} gained {x}, row {least} only {y}.",
        most=most.row,
        x=(counted(max(gains), "token"), "accepted"),
        least=least.row,
        y=(min(gains), "rejected"),
    )


def hole(scene: Scene) -> Line:
    row = scene.row
    return line(
        "In row {row} there are now {dead} between its {content} committed tokens.",
        row=row.row,
        dead=(counted(holes(row), "dead cell"), "rejected"),
        content=row.content,
    )


def breaches(scene: Scene, invariant: str) -> list[Violation]:
    """Those of the row first."""
    found = [entry for entry in scene.record.violations if entry.invariant == invariant]
    return sorted(found, key=lambda entry: entry.row != scene.spot.row)


def positions(scene: Scene) -> Line:
    """What the engine says of the positions, in its own words."""
    first = breaches(scene, "I2")[0]
    return line(
        "{name} is broken in {who}: {words}.",
        name=(first.invariant, "broken"),
        who="the batch" if first.row is None else f"row {first.row}",
        words=(showable(violation_words(first)), "broken"),
    )


def rubbish(scene: Scene) -> Line:
    """When the row diverged, and at what speed it goes on."""
    return [
        *where_it_diverged(scene),
        *line(
            " {wrong} of {rows} are wrong by now, at {pace} tokens a second.",
            wrong=(_rows_wrong(scene), "diverged"),
            rows=counted(len(scene.record.rows), "row"),
            pace=f"{scene.timeline.speed_at(scene.number):.0f}",
        ),
    ]


def easy_rubbish(scene: Scene) -> Line:
    """When the row diverged, and how many of the guesses are accepted."""
    return [
        *line(
            "{accepted} of {count} are accepted on average. ",
            accepted=(f"{scene.timeline.accepted_at(scene.number):.1f}", "accepted"),
            count=counted(scene.record.draft_tokens, "guess", "guesses"),
        ),
        *where_it_diverged(scene),
    ]


def where_it_diverged(scene: Scene) -> Line:
    found = first_difference(scene.timeline, scene.answers, scene.spot.row)
    if found is None:
        return []
    return line(
        "Row {row} diverged in round {round}: it says {got}, {due} was right.",
        row=found.row,
        round=found.round,
        got=(quoted(scene, found.got), "diverged"),
        due=(quoted(scene, found.due), "accepted"),
    )


def _rows_wrong(scene: Scene) -> int:
    each = [first_difference(scene.timeline, scene.answers, row.row) for row in scene.record.rows]
    return sum(found is not None and found.round <= scene.number for found in each)


def piling(scene: Scene) -> Line:
    rows = scene.record.rows
    pads = sum(row.padding for row in rows)
    cells = pads + sum(row.content for row in rows)
    return line(
        "After round {round} every row has at least {least}; {share} % of the tensor is padding.",
        round=scene.number,
        least=(counted(wasted(scene.record), "cell") + " of it", "rejected"),
        share=(f"{100 * pads / cells:.0f}", "rejected"),
    )


def false_bonus(scene: Scene) -> Line:
    row = scene.row
    assert row.bonus is not None
    return line(
        "Row {row} commits {bonus}, the very guess that was rejected: {name} is broken.",
        row=row.row,
        bonus=(quoted(scene, row.bonus), "diverged"),
        name=(breaches(scene, "I5")[0].invariant, "broken"),
    )


def shifts(scene: Scene) -> Line:
    record, row = scene.record, scene.row
    before, gained = record.length_before, len(row.committed)
    return line(
        "L goes from {before} to {after}. Row {row} gained {gained}, so "
        "δ = {after} − {before} − {gained} = {delta}: it moves {columns} to the {side}.",
        before=before,
        after=record.length,
        row=row.row,
        gained=gained,
        delta=(f"{row.delta:+d}".replace("-", "−"), "realign"),
        columns=(counted(abs(row.delta), "column"), "realign"),
        side="right" if row.delta > 0 else "left",
    )


def price(scene: Scene) -> Line:
    timeline, number = scene.timeline, scene.number
    return line(
        "In {rounds} {bytes} of K/V were moved, and realignment took {share} % of the time.",
        rounds=counted(number, "round"),
        bytes=(amount(timeline.bytes_at(number)), "realign"),
        share=(f"{100 * timeline.realign_share_at(number):.1f}", "realign"),
    )


def group(scene: Scene) -> Line:
    rows = scene.record.rows
    return line(
        "Rows {rows} all had {length}: no padding, and {bytes} moved by δ.",
        rows=(rows_named([row.row for row in rows]), "accepted"),
        length=(counted(rows[0].before, "token"), "accepted"),
        bytes=amount(scene.record.realign_bytes),
    )


def fell_back(scene: Scene) -> Line:
    rows = scene.record.rows
    lengths = [row.before for row in rows]
    return line(
        "In round {round} the rows had {low} to {high} tokens: {bytes} were moved to pad them. "
        "Of {count} so far, {grouped} had a group.",
        round=scene.number,
        low=min(lengths),
        high=max(lengths),
        bytes=(amount(scene.record.realign_bytes), "realign"),
        count=counted(scene.number, "round"),
        grouped=(_grouped(scene), "accepted"),
    )


def _grouped(scene: Scene) -> int:
    return sum(record.kind == "grouped" for record in scene.timeline.rounds[: scene.number])


def slots(scene: Scene) -> Line:
    row = scene.row
    return line(
        "Row {row} has {stale} behind its end. In {rounds}, {bytes} were moved by δ.",
        row=row.row,
        stale=(counted(stale(row), "stale cell"), "stale"),
        rounds=counted(scene.number, "round"),
        bytes=(amount(scene.timeline.bytes_at(scene.number)), "accepted"),
    )


def joins(scene: Scene) -> Line:
    record, row = scene.record, scene.row
    others = [entry.row for entry in record.rows if entry.row not in record.admitted]
    if not others:
        return line("Row {row} has just joined.", row=(row.row, "accepted"))
    return line(
        "Row {row} has just joined in slot {place}; {others} did not notice.",
        row=(row.row, "accepted"),
        place=row.place,
        others=("row " if len(others) == 1 else "rows ") + rows_named(others),
    )
