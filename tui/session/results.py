"""The result of a run as one JSON object: `batchspec/run/1` of the contract."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from engine.config.errors import UserError
from engine.records.schema import RunHeader, Summary
from tui.view.sentences import warning_words

RUN_SCHEMA = "batchspec/run/1"
STDOUT = Path("-")


def run_result(header: RunHeader, summary: Summary) -> dict[str, Any]:
    """Plain values, ready for JSON."""
    result: dict[str, Any] = {
        "schema": RUN_SCHEMA,
        "warning": warning_words(header.settings),
        "method": header.method,
        "pair": msgspec.to_builtins(header.pair),
        "settings": dict(header.settings),
        "rows": msgspec.to_builtins(summary.rows),
        "totals": msgspec.to_builtins(summary.totals),
        "interrupted": summary.interrupted,
        "versions": dict(header.versions),
    }
    # The contract names both models, whatever else is said about the pair.
    result["pair"] |= {"target": header.pair.target, "draft": header.pair.draft}
    return result


def write_run(path: Path, header: RunHeader, summary: Summary) -> None:
    """Write the result to a file, or to stdout where `path` is `-`."""
    write_json(path, run_result(header, summary))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write one JSON object.

    Raises:
        UserError: the file cannot be written.
    """
    text = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    if path == STDOUT:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return
    try:
        path.write_bytes(text)
    except OSError as error:
        raise UserError(f"--json {path}: cannot be written: {error.strerror}") from error


def check_writable(option: str, path: Path | None) -> None:
    """Find out before a long run whether its result can be written.

    Raises:
        UserError: the directory is missing, or the path is a directory.
    """
    if path is None or path == STDOUT:
        return
    if path.is_dir():
        raise UserError(f"{option} {path}: this is a directory; name a file")
    if not path.absolute().parent.is_dir():
        raise UserError(f"{option} {path}: there is no directory {path.absolute().parent}")
