"""Traces of older versions: each of their lines as a line of today."""

from __future__ import annotations

import re
from typing import Any

OLDEST = 1
"""The first version of the format; every one since then can be read."""

_SETTINGS = {"K": "draft_tokens", "B": "batch_size", "W": "window"}


def upgrade(line: dict[str, Any], version: int) -> dict[str, Any]:
    """A record of the trace format's `version`, as this version names things.

    Args:
        line: the decoded JSON object of one record; it is changed in place.
    """
    if version < 2:
        _to_2(line)
    if version < 3:
        _to_3(line)
    return line


def _to_2(line: dict[str, Any]) -> None:
    """`proposals` of a row became `draft_token_ids`; the setting `own_text`, `prompt_lookup`."""
    for row in _objects(line, "rows"):
        if "proposals" in row:
            row["draft_token_ids"] = row.pop("proposals")
    settings = line.get("settings")
    if isinstance(settings, dict) and "own_text" in settings:
        settings["prompt_lookup"] = settings.pop("own_text")


def _to_3(line: dict[str, Any]) -> None:
    """Sentences became facts. Those that facts cannot be taken from are kept as notes."""
    for violation in _objects(line, "violations"):
        words = violation["note"] = str(violation.pop("message", ""))
        if violation.get("invariant") == "I5" and words.startswith("token "):
            violation["kind"] = "choice"
    if line.get("type") == "round":
        if reason := line.pop("draft_reason", ""):
            line["draft_choice"] = {"note": reason}
        for row in _objects(line, "rows"):
            _scheduled(line, row)
    elif line.get("type") == "change":
        _changed(line)


def _scheduled(line: dict[str, Any], row: dict[str, Any]) -> None:
    words = str(row.pop("why", ""))
    if starving := re.match(r"row (\d+) waited \d+ rounds; ", words):
        line["starving"] = int(starving[1])
    if largest := re.search(r"fallback: largest group (\d+),", words):
        line["largest_group"] = int(largest[1])
    if not re.match(r"(row \d+ waited|group of|fallback:|joined: slot) ?", words):
        row["note"] = words


def _changed(line: dict[str, Any]) -> None:
    line["note"] = words = str(line.pop("what", ""))
    names = [part.split(" = ")[0] for part in words.split(", ") if " = " in part]
    line["changed"] = [_SETTINGS.get(name, name.replace(" ", "_")) for name in names]
    if line.pop("held", False):
        line["kind"] = "memory"


def _objects(line: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects in the list of this name; none where it is no such list."""
    found = line.get(name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
