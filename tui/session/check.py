"""A check of another engine's tokens, in a thread of its own, for the app to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from engine.config.settings import Settings
from engine.evaluation.check.outputs import Foreign, read_foreign
from engine.records.schema import Record
from engine.runs.worker import Progress
from tui.view.state.checked import Checked

if TYPE_CHECKING:
    from engine.pairs.load import Pair


Check = Callable[[Foreign, Progress], Checked]
"""Does the whole of it; called in the engine's thread."""


@runtime_checkable
class CheckingSource(Protocol):
    """A source whose target can be asked. `check` is called in an engine's thread."""

    name: str

    def check(self, foreign: Foreign, settings: Settings, progress: Progress) -> Checked: ...


class CheckSource:
    """A source without records: what it makes is `found`."""

    live = False

    def __init__(self, path: Path, check: Check) -> None:
        self.path = path
        self.name = path.name
        self.found: Checked | None = None
        self._check = check

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        """Nothing, when the check is done.

        Raises:
            UserError: the file cannot be used, or the target cannot be loaded.
        """
        progress(f"reading {self.name}", None)
        foreign = read_foreign(self.path)
        self.found = self._check(foreign, progress)
        return iter(())


def check_settings(
    foreign: Foreign,
    base: Settings,
    *,
    max_new_tokens: int | None = None,
    draft_tokens: int | str | None = None,
    batch_size: int | None = None,
) -> Settings:
    """What the oracle is asked with: what was given, else what the file says, else `base`.

    Raises:
        UserError: a value that cannot be used.
    """
    return Settings(
        max_new_tokens=foreign.budget if max_new_tokens is None else max_new_tokens,
        draft_tokens=_first(draft_tokens, foreign.settings.get("draft_tokens"), 5),
        batch_size=_first(batch_size, foreign.settings.get("batch_size"), 4),
        device=base.device,
        dtype=base.dtype,
        threads=base.threads,
    ).check()


def _first(given: int | str | None, recorded: object, default: int) -> int:
    """`auto` is no number."""
    for value in (given, recorded):
        if isinstance(value, int):
            return value
    return default


def checked(
    pair: Pair,
    foreign: Foreign,
    settings: Settings,
    chat: bool | None,
    progress: Progress,
    tolerance: float | None = None,
) -> Checked:
    """Ask the target of a loaded pair."""
    from engine.evaluation.check.check import check
    from engine.text.prompts import encode_prompts

    entries = [row.prompt for row in foreign.rows]
    prompts = encode_prompts(entries, pair.tokenizer, chat, pair.info.context)
    result = check(pair, settings, prompts, foreign, tolerance=tolerance, progress=progress)
    return Checked(foreign, prompts, result, pair.tokenizer)
