"""`batchspec-tui doctor`: what was found on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from engine.config.counted import counted
from tui.session.results import STDOUT, check_writable, write_json

SCHEMA = "batchspec/doctor/1"


@click.command("doctor")
@click.option(
    "--json", "path", type=click.Path(path_type=Path), metavar="PATH", help="- is stdout."
)
def doctor(path: Path | None) -> None:
    """Versions, devices, dtypes, memory, terminal, pairs that are ready."""
    check_writable("--json", path)
    from engine.pairs.environment import describe

    facts = {"schema": SCHEMA, **describe(), "terminal": terminal()}
    if path is not None:
        write_json(path, facts)
    if path != STDOUT:
        _print(facts)


def terminal() -> dict[str, Any]:
    """What the app would find itself on."""
    size = shutil.get_terminal_size()
    return {
        "interactive": sys.stdin.isatty() and sys.stdout.isatty(),
        "columns": size.columns,
        "lines": size.lines,
        "term": os.environ.get("TERM", ""),
        "colorterm": os.environ.get("COLORTERM", ""),
        "encoding": sys.stdout.encoding or "",
    }


def _print(facts: dict[str, Any]) -> None:
    from rich.console import Console

    from tui.cli.tables import plain_table

    rows = [(name, text) for name, text in facts["versions"].items()]
    rows.append(("platform", facts["platform"]))
    rows += [(device["name"], _device(device)) for device in facts["devices"]]
    rows.append(("auto means", f"{facts['auto']['device']}, {facts['auto']['dtype']}"))
    rows.append(("--cuda-graphs", _graphs(facts["cuda"])))
    memory = facts["memory"]
    rows.append(
        (
            "memory",
            f"{memory['available_bytes'] / 1e9:.1f} GB free of {memory['total_bytes'] / 1e9:.1f}",
        )
    )
    seen = facts["terminal"]
    rows.append(
        (
            "terminal",
            f"{seen['columns']}×{seen['lines']}, TERM={seen['term'] or 'unset'}, "
            f"{seen['encoding']}{'' if seen['interactive'] else ', not interactive'}",
        )
    )
    smollm2 = _weights(facts["weights"]["smollm2"])
    for name, state in facts["pairs"].items():
        rows.append((f"pair {name}", smollm2 if name == "smollm2" else state))
    rows += [(name, place) for name, place in facts["places"].items()]
    Console(highlight=False, soft_wrap=True).print(plain_table((), rows))


def _device(device: dict[str, Any]) -> str:
    words = [device["model"]]
    if "threads" in device:
        words.append(_threads(device["threads"]))
    if "memory_bytes" in device:
        free, total = device["free_bytes"] / 1e9, device["memory_bytes"] / 1e9
        words.append(f"{free:.1f} GB free of {total:.1f}")
    found = ", ".join(device["instructions"])
    words.append(f"bfloat16 {'native' if device['bfloat16'] else 'emulated or none'}")
    if found:
        words.append(found)
    words.append(f"auto takes {device['auto_dtype']}")
    return ", ".join(words)


def _threads(count: int) -> str:
    """How many torch takes, and why, where that is not its own choice."""
    words = counted(count, "thread")
    variable = os.environ.get("OMP_NUM_THREADS", "")
    return f"{words} (OMP_NUM_THREADS is {variable})" if variable else words


def _graphs(cuda: dict[str, Any]) -> str:
    if cuda["graphs"]:
        return f"possible (CUDA {cuda['built_for']})"
    if cuda["built_for"] is None:
        return "not possible: this torch is built without CUDA"
    return f"not possible: no CUDA device found (torch is built for CUDA {cuda['built_for']})"


def _weights(found: dict[str, Any]) -> str:
    if found["converted"]:
        return f"ready in {found['converted']}"
    if found["installed"]:
        return f"installed in {found['installed']}, converted at first use"
    return "not here yet: downloaded at first use (90 MB)"
