"""The pairs as data: the built-in ones, the paper's, and the user's own.

A user adds pairs in `pairs.toml` of the configuration directory:

    [pairs.mine]
    target = "org/big-model"          # hub id, or a local directory
    draft = "org/small-model"         # or "lookup": draft tokens from the row's own text
    note = "what it is"               # this and the rest are optional
    target_revision = "main"          # a branch, tag or commit; likewise draft_revision
    chat = "vicuna"                   # a chat format by name, or in full:
                                      # "USER: {prompt} ASSISTANT:"
    thinking = true                   # let the model think before it answers
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from engine.config.errors import UserError
from engine.config.paths import config_dir
from engine.text.chat import PROMPT

LOOKUP = "lookup"
"""The draft that is no model: draft tokens are looked up in the row's own text."""

NGRAM = "ngram"
"""No model either: the row's own text, then a table of what the target habitually writes."""

EAGLE = "eagle"
"""The built-in target's draft that reads its states."""

DRAFT_MODEL = "model"
"""The built-in target's draft of nine of its layers: an ordinary model."""

MODEL_FREE = (LOOKUP, NGRAM)

CHOICES = (*MODEL_FREE, EAGLE, DRAFT_MODEL)
"""What `--draft` may name beside models."""

NGRAM_FILES = (".ngram.safetensors", ".phrases.safetensors")
"""How the name of an n-gram table ends: today, and as older versions wrote it."""

OLD_DRAFTS = {"phrases": NGRAM, "features": EAGLE, "layers": DRAFT_MODEL}
"""Drafts by their names of the version before."""

CHAT_FORMATS = {
    "vicuna": (  # v1.1, which the weights v1.1 to v1.5 were trained with
        "A chat between a curious user and an artificial intelligence assistant. The assistant "
        "gives helpful, detailed, and polite answers to the user's questions. "
        "USER: {prompt} ASSISTANT:"
    ),
}
"""Chat formats for tokenizers that bring no template, by name: the text around the prompt."""

DEFAULT_PAIR = "smollm2"
TOY_DRAFT = "toy draft"


class PairSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pair. `target` and `draft` are hub ids or directories for kind "models"."""

    name: str = ""
    kind: Literal["smollm2", "toy", "models"] = "models"
    target: str
    draft: str
    target_revision: str | None = None
    draft_revision: str | None = None
    chat: str = ""
    """A name of `CHAT_FORMATS`, or a format; empty: the tokenizer's own template."""
    thinking: bool = False
    """Whether a model that can think before it answers does."""
    prompt_lookup: bool = False
    """Whether a row's own text is drafted before the draft model is asked."""
    draft_device: str | None = None
    """Where the draft runs; None: where the target does."""
    note: str = ""
    source: str = "built in"

    @property
    def chat_format(self) -> str:
        """The format in full."""
        return CHAT_FORMATS.get(self.chat, self.chat)

    @property
    def models(self) -> tuple[tuple[str, str | None], ...]:
        """The names and revisions of the models that come from a directory or the hub."""
        named = [(self.target, self.target_revision)] if self.kind == "models" else []
        own = (*CHOICES, TOY_DRAFT)
        if self.draft not in own and not self.draft.endswith(NGRAM_FILES):
            named.append((self.draft, self.draft_revision))
        return tuple(named)

    @property
    def target_name(self) -> str:
        """As `--target` takes it."""
        return _with_revision(self.target, self.target_revision)

    @property
    def draft_name(self) -> str:
        """As `--draft` takes it."""
        return _with_revision(self.draft, self.draft_revision)


class PairRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The pair that a user asked for, before anything is loaded.

    `target` given: a pair of the user's own, `name` is ignored. Only `draft` given:
    the named pair's target with another draft. Both may pin a revision: "org/model@revision".
    """

    name: str = DEFAULT_PAIR
    target: str | None = None
    draft: str | None = None
    thinking: bool | None = None
    """None: as the pair says."""
    draft_device: str | None = None


BUILT_IN: tuple[PairSpec, ...] = (
    PairSpec(
        name="smollm2",
        kind="smollm2",
        target="SmolLM2-135M-Instruct",
        draft=EAGLE,
        prompt_lookup=True,
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
        chat="vicuna",
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

    A target of the user's own that some pair has too is spoken to in that pair's format.

    Raises:
        UserError: an unknown name, a target without a draft, or no such chat format.
    """
    pairs = all_pairs()
    if request.target is not None:
        if request.draft is None:
            raise UserError("--target needs a --draft: a model, or 'lookup'")
        target, revision = split_revision(request.target)
        known = next((spec for spec in pairs.values() if spec.target == target), None)
        spec = PairSpec(
            name=_short(target),
            target=target,
            draft="",
            target_revision=revision,
            chat=known.chat if known is not None else "",
            source="command line",
        )
    elif request.name in pairs:
        spec = pairs[request.name]
    else:
        names = ", ".join(pairs)
        raise UserError(f"unknown --model-pair '{request.name}'; choose one of {names}")
    if request.draft is not None:
        draft, revision = split_revision(request.draft)
        spec = msgspec.structs.replace(spec, draft=draft, draft_revision=revision)
    spec = msgspec.structs.replace(spec, draft=OLD_DRAFTS.get(spec.draft, spec.draft))
    if request.thinking is not None:
        spec = msgspec.structs.replace(spec, thinking=request.thinking)
    if request.draft_device is not None:
        spec = msgspec.structs.replace(spec, draft_device=request.draft_device)
    return _checked(spec)


def _checked(spec: PairSpec) -> PairSpec:
    if spec.chat and PROMPT not in spec.chat_format:
        names = ", ".join(CHAT_FORMATS)
        raise UserError(
            f"{spec.source}: no chat format is called '{spec.chat}' ({names}), and as a format it "
            f"has no {PROMPT} in it"
        )
    return spec


def split_revision(name: str) -> tuple[str, str | None]:
    """A hub id and its revision, from "org/model@revision"; a path stays whole."""
    model, at, revision = name.rpartition("@")
    if not at or not model or model.startswith((".", "/", "~")) or Path(name).expanduser().exists():
        return name, None
    return model, revision or None


def _with_revision(name: str, revision: str | None) -> str:
    return name if revision is None else f"{name}@{revision}"


def _short(path_or_id: str) -> str:
    return path_or_id.rstrip("/").rsplit("/", 1)[-1] or path_or_id


class _UserFile(msgspec.Struct, forbid_unknown_fields=True):
    pairs: dict[str, PairSpec] = {}


def _with_current_names(file: dict[str, Any]) -> dict[str, Any]:
    """`own_text` of a pair is now `prompt_lookup`."""
    pairs = file.get("pairs")
    for pair in pairs.values() if isinstance(pairs, dict) else ():
        if isinstance(pair, dict) and "own_text" in pair:
            pair["prompt_lookup"] = pair.pop("own_text")
    return file


def _user_pairs(path: Path) -> list[PairSpec]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    try:
        found = msgspec.convert(_with_current_names(tomllib.loads(text)), _UserFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UserError(f"{path}: {error}") from error
    return [
        msgspec.structs.replace(spec, name=name, kind="models", source=str(path))
        for name, spec in found.pairs.items()
    ]
