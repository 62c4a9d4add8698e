"""The options that the app, run, verify and bench share, and what they add up to.

Everything is checked here, before torch is imported: a wrong value costs no waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from engine.config.errors import UserError
from engine.config.faults import FAULTS
from engine.config.methods import METHODS
from engine.config.settings import DEVICES, DTYPES, Sampling, Settings
from engine.pairs.registry import DEFAULT_PAIR, PairRequest, resolve
from engine.text.prompts import PromptEntry, read_prompts
from tui.session.results import STDOUT, check_writable

Command = TypeVar("Command", bound=Callable[..., Any])


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What the shared options say, checked."""

    pair: PairRequest
    settings: Settings
    prompts: tuple[PromptEntry, ...]
    chat: bool | None
    json: Path | None
    trace: Path | None
    quiet: bool


class DraftTokens(click.ParamType):  # type: ignore[type-arg]
    """A whole number, or `auto`."""

    name = "draft tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: Any) -> int | str:
        if value == "auto":
            return "auto"
        try:
            return int(value)
        except ValueError:
            self.fail(f"'{value}' is neither a whole number nor 'auto'", param, ctx)


_FILE = click.Path(path_type=Path)
_DEFAULTS = Settings()

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--model-pair", metavar="NAME", help=f"Target and draft. [default: {DEFAULT_PAIR}]"
    ),
    click.option("--target", metavar="PATH_OR_ID", help="Any causal LM as the target."),
    click.option("--draft", metavar="PATH_OR_ID", help="Its draft; or eagle, lookup, ngram."),
    click.option("--draft-device", metavar="NAME", help="The draft's. [default: the target's]"),
    click.option(
        "--method",
        metavar="NAME",
        default=_DEFAULTS.method,
        show_default=True,
        help=f"One of {', '.join(METHODS)}.",
    ),
    click.option("--prompt", "texts", metavar="TEXT", multiple=True, help="Repeatable."),
    click.option("--prompts", "file", type=_FILE, metavar="FILE", help="A .txt or .jsonl file."),
    click.option("--limit", type=int, metavar="N", help="Only the first N prompts."),
    click.option(
        "--chat/--no-chat",
        default=None,
        help="Apply the chat template. [default: where there is one]",
    ),
    click.option(
        "--thinking/--no-thinking",
        default=None,
        help="Let the model think first. [default: as the pair says, mostly not]",
    ),
    click.option(
        "--batch-size", type=int, default=_DEFAULTS.batch_size, show_default=True, help="Rows, B."
    ),
    click.option(
        "--draft-tokens",
        type=DraftTokens(),
        metavar="N|auto",
        default=_DEFAULTS.draft_tokens,
        show_default=True,
        help="Draft tokens a row and round, K.",
    ),
    click.option(
        "--window",
        type=int,
        default=_DEFAULTS.window,
        show_default=True,
        help="Rows in view of exspec, W.",
    ),
    click.option(
        "--max-new-tokens",
        type=int,
        default=_DEFAULTS.max_new_tokens,
        show_default=True,
        help="Budget of each row.",
    ),
    click.option(
        "--temperature", type=float, default=0.0, show_default=True, help="0 is greedy decoding."
    ),
    click.option("--top-k", type=int, default=0, help="Sample from the K best tokens. 0: off."),
    click.option("--top-p", type=float, default=1.0, help="Sample from the best share P. 1: off."),
    click.option("--seed", type=int, default=0, show_default=True, help="Of the sampling."),
    click.option(
        "--device",
        metavar="NAME",
        default="auto",
        show_default=True,
        help=f"One of {', '.join(DEVICES)}.",
    ),
    click.option(
        "--dtype",
        metavar="NAME",
        default="auto",
        show_default=True,
        help=f"One of {', '.join(DTYPES)}.",
    ),
    click.option("--threads", type=int, default=0, help="CPU threads. 0: torch's choice."),
    click.option(
        "--strict", is_flag=True, help="Every forward in one shape: exact in every dtype."
    ),
    click.option(
        "--prompt-lookup/--no-prompt-lookup",
        default=None,
        help="Where a row repeats itself, draft its own text before asking the draft. "
        "[default: with smollm2]",
    ),
    click.option(
        "--cuda-graphs",
        is_flag=True,
        help="Record slotspec's forwards and replay them: less launching. CUDA only.",
    ),
    click.option(
        "--audit", is_flag=True, help="Recompute each row's K/V alone, and name ghosts. Slow."
    ),
    click.option(
        "--fault",
        metavar="NAME",
        default="",
        help=f"Run eqspec with a fault of the lab, on purpose: {', '.join(FAULTS)}.",
    ),
    click.option(
        "--force-accept",
        type=float,
        metavar="RATE",
        help="Accept by a seeded pattern, not by comparison: to study costs at any acceptance.",
    ),
    click.option(
        "--force-spread",
        type=float,
        metavar="S",
        default=_DEFAULTS.force_spread,
        help="Let the rows' own rates lie within RATE ± S.",
    ),
    click.option(
        "--json", "json", type=_FILE, metavar="PATH", help="Write the result as JSON; - is stdout."
    ),
    click.option("--trace", type=_FILE, metavar="PATH", help="Record the run; .zst is compressed."),
    click.option("--quiet", is_flag=True, help="No progress, no tables."),
)


def shared_options(command: Command) -> Command:
    """Give a click command all the shared options; `chosen` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chosen(
    *,
    model_pair: str | None,
    target: str | None,
    draft: str | None,
    draft_device: str | None,
    method: str,
    texts: tuple[str, ...],
    file: Path | None,
    limit: int | None,
    chat: bool | None,
    thinking: bool | None,
    batch_size: int,
    draft_tokens: Any,
    window: int,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    device: str,
    dtype: str,
    threads: int,
    strict: bool,
    prompt_lookup: bool | None,
    cuda_graphs: bool,
    audit: bool,
    fault: str,
    force_accept: float | None,
    force_spread: float,
    json: Path | None,
    trace: Path | None,
    quiet: bool,
) -> Chosen:
    """Check the shared options and read the prompts.

    Raises:
        UserError: the first thing that cannot be used, in one line.
    """
    if target is not None and model_pair is not None:
        raise UserError("--target and --model-pair both name a target: give one of them")
    pair = PairRequest(
        name=model_pair or DEFAULT_PAIR,
        target=target,
        draft=draft,
        thinking=thinking,
        draft_device=draft_device,
    )
    resolve(pair)
    settings = Settings(
        method=method,
        batch_size=batch_size,
        draft_tokens=draft_tokens,
        window=window,
        max_new_tokens=max_new_tokens,
        sampling=Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed),
        device=device,
        dtype=dtype,
        threads=threads,
        strict=strict,
        prompt_lookup=prompt_lookup,
        cuda_graphs=cuda_graphs,
        audit=audit,
        fault=fault,
        force_accept=force_accept,
        force_spread=force_spread,
    ).check()
    if threads < 0:
        raise UserError(f"--threads must be 0 (torch's choice) or more, not {threads}")
    if limit is not None and limit < 1:
        raise UserError(f"--limit must be 1 or more, not {limit}")
    if trace == STDOUT:
        raise UserError("--trace cannot be stdout: name a file")
    check_writable("--json", json)
    check_writable("--trace", trace)
    return Chosen(
        pair=pair,
        settings=settings,
        prompts=read_prompts(texts, file, limit),
        chat=chat,
        json=json,
        trace=trace,
        quiet=quiet,
    )
