"""The pairs as data: the built-in ones, the paper's, and the user's own.

A user adds pairs in `pairs.toml` of the configuration directory:

    [pairs.mine]
    target = "org/big-model"          # hub id, or a local directory
    draft = "org/small-model"         # or "lookup": proposals from the row's own text
    note = "what it is"               # optional
    target_revision = "main"          # optional, likewise draft_revision
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from engine.errors import UserError
from engine.paths import config_dir

LOOKUP = "lookup"
"""The draft that is no model: proposals are looked up in the row's own text."""

PHRASES = "phrases"
"""No model either: the row's own text, then a table of what the target habitually writes."""

MODEL_FREE = (LOOKUP, PHRASES)

DEFAULT_PAIR = "smollm2"
TOY_DRAFT = "toy draft"
BUILT_IN_DRAFT = "built-in draft"


class PairSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pair. `target` and `draft` are hub ids or directories for kind "models"."""

    name: str = ""
    kind: Literal["smollm2", "toy", "models"] = "models"
    target: str
    draft: str
    target_revision: str | None = None
    draft_revision: str | None = None
    note: str = ""
    source: str = "built in"


class PairRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The pair that a user asked for, before anything is loaded.

    `target` given: a pair of the user's own, `name` is ignored. Only `draft` given:
    the named pair's target with another draft.
    """

    name: str = DEFAULT_PAIR
    target: str | None = None
    draft: str | None = None
    target_revision: str | None = None
    draft_revision: str | None = None


BUILT_IN: tuple[PairSpec, ...] = (
    PairSpec(
        name="smollm2",
        kind="smollm2",
        target="SmolLM2-135M-Instruct",
        draft=BUILT_IN_DRAFT,
        note="runs on any CPU; the default",
    ),
    PairSpec(
        name="toy",
        kind="toy",
        target="toy target",
        draft=TOY_DRAFT,
        note="random weights, in memory at once, no network",
    ),
    PairSpec(
        name="vicuna",
        target="lmsys/vicuna-7b-v1.3",
        draft="double7/vicuna-68m",
        note="the paper's first pair",
    ),
    PairSpec(
        name="qwen3",
        target="Qwen/Qwen3-8B",
        draft="Qwen/Qwen3-0.6B",
        note="the paper's second pair",
    ),
    PairSpec(
        name="glm4",
        target="zai-org/GLM-4-9B-0414",
        draft="jukofyork/GLM-4.5-DRAFT-0.6B-v3.0",
        note="the paper's third pair",
    ),
)


def user_file() -> Path:
    """The file in which users list pairs of their own."""
    return config_dir() / "pairs.toml"


def all_pairs() -> dict[str, PairSpec]:
    """Every pair by name, built-in ones first; the user's may replace the "models" ones.

    Raises:
        UserError: the user's file cannot be read, with the place and the reason.
    """
    pairs = {spec.name: spec for spec in BUILT_IN}
    for spec in _user_pairs(user_file()):
        if spec.name in pairs and pairs[spec.name].kind != "models":
            raise UserError(f"{user_file()}: the name '{spec.name}' is taken by a built-in pair")
        pairs[spec.name] = spec
    return pairs


def resolve(request: PairRequest) -> PairSpec:
    """The pair that a request means.

    Raises:
        UserError: an unknown name, or a target without a draft.
    """
    if request.target is not None:
        if request.draft is None:
            raise UserError("--target needs a --draft: a model, or 'lookup'")
        return PairSpec(
            name=_short(request.target),
            target=request.target,
            draft=request.draft,
            target_revision=request.target_revision,
            draft_revision=request.draft_revision,
            source="command line",
        )
    pairs = all_pairs()
    if request.name not in pairs:
        names = ", ".join(pairs)
        raise UserError(f"unknown --model-pair '{request.name}'; choose one of {names}")
    spec = pairs[request.name]
    if request.draft is None:
        return spec
    return msgspec.structs.replace(spec, draft=request.draft, draft_revision=request.draft_revision)


def _short(path_or_id: str) -> str:
    return path_or_id.rstrip("/").rsplit("/", 1)[-1] or path_or_id


class _UserFile(msgspec.Struct, forbid_unknown_fields=True):
    pairs: dict[str, PairSpec] = {}


def _user_pairs(path: Path) -> list[PairSpec]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    try:
        found = msgspec.convert(tomllib.loads(text), _UserFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UserError(f"{path}: {error}") from error
    return [
        msgspec.structs.replace(spec, name=name, kind="models", source=str(path))
        for name, spec in found.pairs.items()
    ]
