"""The command line that makes a run again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from engine.config.errors import UserError
from engine.config.settings import Sampling, Settings
from engine.pairs.registry import CHOICES, all_pairs
from engine.records.schema import RunHeader
from engine.text.prompts import shipped_prompts

FLAGS = ("strict", "cuda_graphs", "audit")
LEFT_OUT = ("inspect", "threads", "prompt_lookup", *FLAGS)


def command_line(header: RunHeader, prompts: Sequence[str] | None = None) -> str:
    """`batchspec-tui run …`, with what differs from the defaults, quoted for a shell.

    Args:
        prompts: the words that name the prompts. None: they are typed out, or named by their
            number where they are the shipped ones.
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
    words += [f"--{name.replace('_', '-')}" for name in FLAGS if header.settings.get(name)]
    words += _prompt_lookup(header, by_name="--model-pair" in words)
    return shlex.join([*words, *(_prompts(header) if prompts is None else prompts)])


def _pair(header: RunHeader) -> list[str]:
    """By name, where the name still means this target; else by both models."""
    pair = header.pair
    draft = ["--draft", pair.draft] if pair.draft else []
    rest = ["--draft-device", pair.draft_device] if pair.draft_device else []
    try:
        spec = all_pairs().get(pair.name)
    except UserError:
        spec = None
    if spec is None or (spec.kind == "models" and spec.target_name != pair.target):
        return ["--target", pair.target, *draft, *rest, *(["--thinking"] if pair.thinking else [])]
    if spec.thinking != pair.thinking:
        rest.append("--thinking" if pair.thinking else "--no-thinking")
    other = spec.draft_name != pair.draft and (spec.kind == "models" or pair.draft in CHOICES)
    return ["--model-pair", pair.name, *(draft if other else []), *rest]


def _prompt_lookup(header: RunHeader, *, by_name: bool) -> list[str]:
    """Where it is not as the pair says."""
    asked = header.settings.get("prompt_lookup")
    usual = all_pairs()[header.pair.name].prompt_lookup if by_name else False
    if asked is None or asked == usual:
        return []
    return ["--prompt-lookup" if asked else "--no-prompt-lookup"]


def prompt_words(
    texts: Sequence[str], file: Path | None, limit: int | None, chat: bool | None
) -> list[str]:
    """The options about prompts, as they were given."""
    words = [word for text in texts for word in ("--prompt", text)]
    words += ["--prompts", str(file)] if file is not None else []
    words += ["--limit", str(limit)] if limit is not None else []
    return words if chat is None else [*words, "--chat" if chat else "--no-chat"]


def _prompts(header: RunHeader) -> list[str]:
    texts = [prompt.text for prompt in header.prompts]
    shipped = [entry.text for entry in shipped_prompts()]
    if texts == shipped:
        return []
    if texts == shipped[: len(texts)]:
        return ["--limit", str(len(texts))]
    return [word for text in texts for word in ("--prompt", text)]
