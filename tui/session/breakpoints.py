"""The user's breakpoints: kept from one start to the next, applied to every run of the app."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from engine.config.errors import UserError
from engine.config.paths import config_dir
from engine.microscope.breakpoints import Breakpoint, Hit, parse_breakpoint

if TYPE_CHECKING:
    from engine.microscope.watch import Watch
    from tui.session.control import Control

FILE = "breakpoints.json"


@runtime_checkable
class OracleSource(Protocol):
    """A source that can have the oracle beside a run."""

    needs_oracle: bool


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list."""

    point: Breakpoint
    on: bool = True
    given: bool = False
    """From the command line: for this time only."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """One breakpoint in the file."""

    when: str
    on: bool = True


class Breaking:
    """The list of breakpoints, and what has become of them."""

    def __init__(self, given: Iterable[Breakpoint] = ()) -> None:
        self.entries = [*load(), *(Entry(point=point, given=True) for point in given)]
        self.held_by: Hit | None = None
        """The last one that applied; None: the run has gone on since."""
        self._seen: dict[int, int] = {}

    def give(self, points: Iterable[Breakpoint]) -> None:
        """Breakpoints for this time only."""
        self.entries += [Entry(point=point, given=True) for point in points]

    @property
    def points(self) -> tuple[Breakpoint, ...]:
        """Those that are switched on."""
        return tuple(entry.point for entry in self.entries if entry.on)

    def add(self, text: str) -> None:
        """A new one, from what was typed.

        Raises:
            UserError: it is none, or there already.
        """
        point = parse_breakpoint(text)
        if any(entry.point == point for entry in self.entries):
            raise UserError(f"breakpoint '{point}' is in the list already")
        self.entries.append(Entry(point=point))
        self.save()

    def toggle(self, place: int) -> None:
        entry = self.entries[place]
        self.entries[place] = msgspec.structs.replace(entry, on=not entry.on)
        self.save()

    def remove(self, place: int) -> None:
        del self.entries[place]
        self.save()

    def apply(self, control: Control) -> None:
        """Have the runs of this control watched for what is switched on now."""
        for watch in watches(control):
            if watch.points != self.points:
                watch.points = self.points
        if isinstance(control.source, OracleSource):
            control.source.needs_oracle = any(point.kind == "diverge" for point in self.points)

    def new_hits(self, control: Control) -> list[Hit]:
        """What has applied since the last call, the last of it kept in `held_by`."""
        found: list[Hit] = []
        for watch in watches(control):
            hits = watch.hits
            seen = min(self._seen.get(id(watch), 0), len(hits))
            found += hits[seen:]
            self._seen[id(watch)] = seen + len(hits[seen:])
        if found:
            self.held_by = found[-1]
        elif control.worker.running:
            self.held_by = None
        return found

    def save(self) -> None:
        """Keep the list, without what the command line gave. Failing is no reason to complain."""
        saved = [Saved(when=str(e.point), on=e.on) for e in self.entries if not e.given]
        folder = config_dir()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / f"{FILE}.new"
            draft.write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=2))
            draft.replace(folder / FILE)
        except OSError:
            return


def load() -> list[Entry]:
    """The list as it was left; what cannot be read is left out."""
    try:
        saved = msgspec.json.decode((config_dir() / FILE).read_bytes(), type=list[Saved])
    except (OSError, msgspec.MsgspecError):
        return []
    entries = []
    for one in saved:
        try:
            entries.append(Entry(point=parse_breakpoint(one.when), on=one.on))
        except UserError:
            continue
    return entries


def watches(control: Control) -> list[Watch]:
    """Of the run, and of the comparison and the fork beside it."""
    return [control.watch, *(beside.watch for beside in control.besides)]


def held_words(hit: Hit) -> str:
    """Which breakpoint holds the run, in the status line."""
    who = "" if hit.row is None or hit.breakpoint.row is not None else f" row {hit.row}"
    return f"{hit.breakpoint}{who}"
