"""Models and prompts for the commands that work without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.config.errors import UserError
from engine.config.methods import METHODS
from engine.config.settings import Settings
from engine.pairs.registry import resolve
from engine.records.schema import Prompt
from tui.cli.options import Chosen
from tui.cli.progress import ProgressLine

if TYPE_CHECKING:
    from engine.pairs.load import Pair


def load(
    options: Chosen, line: ProgressLine, lanes: Sequence[Settings] = ()
) -> tuple[Pair, tuple[Prompt, ...]]:
    """Load the pair and encode the prompts.

    Args:
        lanes: what is to be run at once, where it is more than the options say.

    Raises:
        UserError: see `load_pair` and `encode_prompts`.
    """
    from engine.pairs.hub import obtain_models

    obtain_models(resolve(options.pair), line.stage)
    line.stage("loading torch", None)
    from engine.pairs.job import Workload
    from engine.pairs.load import load_pair
    from engine.text.prompts import encode_prompts

    settings = options.settings
    pair = load_pair(
        options.pair,
        device=settings.device,
        dtype=settings.dtype,
        threads=settings.threads,
        workload=Workload(tuple(lanes) or (settings,), options.prompts, options.chat),
        progress=line.stage,
    )
    return pair, encode_prompts(options.prompts, pair.tokenizer, options.chat, pair.info.context)


def method_list(text: str | None, fallback: Sequence[str]) -> tuple[str, ...]:
    """The methods of `--methods A,B`, each once; `fallback` where it is not given.

    Raises:
        UserError: a name that is none.
    """
    if text is None:
        return tuple(fallback)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in METHODS:
            raise UserError(f"unknown method '{name}'; choose from {', '.join(METHODS)}")
    if not names:
        raise UserError(f"--methods is empty; choose from {', '.join(METHODS)}")
    return names


def no_trace(options: Chosen, command: str) -> None:
    """Many runs have no place in one trace.

    Raises:
        UserError: `--trace` was given.
    """
    if options.trace is not None:
        raise UserError(f"{command} records no trace; use the app or `run` with --trace")
