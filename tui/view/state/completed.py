"""What a record leaves out, as other engines' may: what follows from the rest is filled in,
and what does not is unknown, which is not the same as 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from engine.records.row import RowRound
from engine.records.schema import RoundRecord
from tui.view.state.track import RowTrack

UNKNOWN = "–"
"""Stands for a figure that the record does not tell."""

CACHELESS = ("dsd",)
"""Methods that keep no K/V of the target from round to round."""


def completed(
    record: RoundRecord, tracks: Mapping[int, RowTrack], piece: Callable[[int], str | None]
) -> RoundRecord:
    """The record with each row's `before` and `content`, and its text as far as it is known.

    Args:
        tracks: the rows as they stood when the round began.
        piece: raw text of a token, where it is known.
    """
    rows = tuple(_completed(row, record, tracks.get(row.row), piece) for row in record.rows)
    same = all(new is old for new, old in zip(rows, record.rows, strict=True))
    return record if same else msgspec.structs.replace(record, rows=rows)


def _completed(
    row: RowRound, record: RoundRecord, track: RowTrack | None, piece: Callable[[int], str | None]
) -> RowRound:
    before = row.before
    if not before and track is not None:
        before = len(track.tokens)
    content = row.content or before + len(row.committed)
    text = row.text
    if not text and row.committed and not (track is not None and track.has_text):
        pieces = [piece(token) for token in row.committed]
        if None in pieces or not record.seconds.total:
            text = "".join(
                f"⟨{token}⟩" if text is None else text
                for token, text in zip(row.committed, pieces, strict=True)
            )
    if (before, content, text) == (row.before, row.content, row.text):
        return row
    return msgspec.structs.replace(row, before=before, content=content, text=text)


def figure(value: int, row: RowRound) -> int | None:
    """A figure of the row's layout; None: 0 in a record that does not tell how the row lies."""
    return value if value or row.kept else None


def has_length(record: RoundRecord) -> bool:
    """Whether the record tells its rectangle."""
    return bool(record.length or record.length_before)


def draft_tokens(record: RoundRecord) -> int | None:
    """K of the round; None: draft tokens were made, and the record does not tell of how many.

    Under `auto` the record says why K was chosen, also where the method (dsd) makes one
    draft token at least.
    """
    if record.draft_choice is not None:
        return record.draft_tokens
    if not record.draft_tokens and any(row.draft_token_ids for row in record.rows):
        return None
    return record.draft_tokens
