"""Traces of older versions: each of their lines as a line of today."""

from __future__ import annotations

from typing import Any

OLDEST = 1
"""The first version of the format; every one since then can be read."""


def upgrade(line: dict[str, Any], version: int) -> dict[str, Any]:
    """A record of the trace format's `version`, as this version names things.

    Args:
        line: the decoded JSON object of one record; it is changed in place.
    """
    if version == 1:
        _from_1(line)
    return line


def _from_1(line: dict[str, Any]) -> None:
    """`proposals` of a row became `draft_token_ids`; the setting `own_text`, `prompt_lookup`."""
    for row in line.get("rows") or ():
        if isinstance(row, dict) and "proposals" in row:
            row["draft_token_ids"] = row.pop("proposals")
    settings = line.get("settings")
    if isinstance(settings, dict) and "own_text" in settings:
        settings["prompt_lookup"] = settings.pop("own_text")
