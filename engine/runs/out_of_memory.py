"""Memory that runs out in a round: the round leaves no trace, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from engine.config.errors import OutOfMemory, is_out_of_memory
from engine.config.settings import Settings
from engine.records.schema import RoundRecord
from engine.rounds.round import Loop
from engine.rounds.sequence import Sequence


def attempt(loop: Loop, rows: Seq[Sequence], settings: Settings) -> RoundRecord | None:
    """Run the next round; None when every row has ended.

    Args:
        rows: of the run, with those that have ended.

    Raises:
        OutOfMemory: there is no memory for it. The rows stand as they stood before.
    """
    before, number = [_counts(row) for row in rows], loop.round
    try:
        return loop.step()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    # outside of the handler: the error's traceback would keep the round's tensors alive
    lengths = {}
    for row, (length, *counted) in zip(rows, before, strict=True):
        row.rounds, row.accepted, row.drafted = counted
        if row.length != length:
            lengths[row.index] = length
    raise OutOfMemory(number, lengths, could_lower(settings))


def _counts(row: Sequence) -> tuple[int, int, int, int]:
    return row.length, row.rounds, row.accepted, row.drafted


def could_lower(settings: Settings) -> dict[str, int]:
    """The two settings that take most memory and can be lowered, with their present values."""
    window = settings.window if settings.method == "exspec" else 0
    tokens = settings.draft_tokens if settings.method != "autoregressive" else 0
    large = {
        name: value
        for name, value, least in (
            ("batch_size", settings.batch_size, 1),
            ("window", window, settings.batch_size),
            ("max_new_tokens", settings.max_new_tokens, 16),
            ("draft_tokens", tokens, 1),
        )
        if isinstance(value, int) and value > least
    }
    return dict(list(large.items())[:2])
