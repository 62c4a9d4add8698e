"""The command line that makes a run again."""

from __future__ import annotations

import shlex

from engine.prompts import shipped_prompts
from engine.records import RunHeader
from engine.settings import Sampling, Settings

LEFT_OUT = ("inspect", "threads", "strict", "audit")


def command_line(header: RunHeader) -> str:
    """`batchspec-tui run …`, with what differs from the defaults.

    The prompts are typed out, or named by their number where they are the shipped ones.
    """
    words = ["batchspec-tui", "run", *_pair(header)]
    defaults = {
        **{name: getattr(Settings(), name) for name in Settings.__struct_fields__},
        **{name: getattr(Sampling(), name) for name in Sampling.__struct_fields__},
        "method": None,
        "device": None,
        "dtype": None,
    }
    for name, value in ({"method": header.method} | header.settings).items():
        if name in LEFT_OUT or name not in defaults or value == defaults[name]:
            continue
        words += [f"--{name.replace('_', '-')}", str(value)]
    words += [f"--{name}" for name in ("strict", "audit") if header.settings.get(name)]
    return shlex.join([*words, *_prompts(header)])


def _pair(header: RunHeader) -> list[str]:
    pair = header.pair
    if pair.name and pair.name != pair.target:
        return ["--model-pair", pair.name]
    return ["--target", pair.target, *(["--draft", pair.draft] if pair.draft else [])]


def _prompts(header: RunHeader) -> list[str]:
    texts = [prompt.text for prompt in header.prompts]
    shipped = [entry.text for entry in shipped_prompts()]
    if texts == shipped:
        return []
    if texts == shipped[: len(texts)]:
        return ["--limit", str(len(texts))]
    return [word for text in texts for word in ("--prompt", text)]
