"""What the command line hands to the app: everything the user asked for, nothing loaded yet."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.config.settings import Settings
from engine.microscope.breakpoints import Breakpoint
from engine.pairs.registry import PairRequest
from engine.text.prompts import PromptEntry


class AppRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for the terminal app. All values are checked; none needs torch."""

    pair: PairRequest = PairRequest()
    settings: Settings = Settings()
    """`settings.device` and `.dtype` may still be `auto`."""
    prompts: tuple[PromptEntry, ...] = ()
    """At least one. Token ids are made by `engine.text.prompts.encode_prompts` after loading."""
    chat: bool | None = None
    """Apply the chat template; None: where the tokenizer has one."""
    tour: bool = False
    """The guided tour, with prompts and settings of its own."""
    paused: bool = False
    """Load, prefill nothing, and wait for a key."""
    breaks: tuple[Breakpoint, ...] = ()
    """Where the run is to be held, beside the user's own breakpoints."""
    theme: str | None = None
    """Name of a theme; None: the user's last choice, or the default."""
    trace: Path | None = None
    """Write the records there as they come (`engine.records.trace.TraceWriter`)."""
    json: Path | None = None
    """Write the result there when the run ends or the app is quit
    (`tui.session.results.write_run`)."""
