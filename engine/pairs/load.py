"""From a request to two models and a tokenizer, ready to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec.structs import replace
from transformers.utils import logging as transformers_logging

from engine.config.device import resolve_device, resolve_dtype, use_threads
from engine.config.errors import UserError
from engine.drafting.ngram_table import NgramTable
from engine.models.causal_lm import LanguageModel
from engine.models.draft_format import is_compact, load_compact
from engine.models.eagle import EagleModel, EagleReader
from engine.models.eagle_format import EagleDraft, is_eagle_draft, load_eagle_draft
from engine.models.lease import Lease
from engine.pairs import hub, smollm2
from engine.pairs.components import (
    eos_ids_of,
    load_model,
    load_tokenizer,
    vocabulary_of,
    wrap,
)
from engine.pairs.job import Job, Progress, Workload
from engine.pairs.memory_check import SMOLLM2_DRAFTS, require_room
from engine.pairs.registry import (
    LOOKUP,
    NGRAM,
    NGRAM_FILES,
    TOY_DRAFT,
    PairRequest,
    PairSpec,
    resolve,
)
from engine.records.schema import PairInfo
from engine.text.tokenizer import Tokenizer, first_difference, known_to_one

SMOLLM2_NGRAMS = "weights/smollm2_ngram.safetensors"


@dataclass(frozen=True)
class Pair:
    """Two models that share a tokenizer. `draft` None: draft tokens from the row's own text,
    and from `ngram` where there are some.

    Attributes:
        never: ids that the draft must not draft, for they mean something to only one of
            the two tokenizers, or something else to each.
    """

    info: PairInfo
    target: LanguageModel
    draft: LanguageModel | None
    tokenizer: Tokenizer
    ngrams: NgramTable | None = None
    never: torch.Tensor | None = None
    prompt_lookup: bool = False
    """Whether rows draft their own text first, where the settings do not say."""
    lease: Lease = field(default_factory=Lease, compare=False, repr=False)
    """Who may run the models now. A copy with other parts has the same one."""


def load_pair(
    request: PairRequest,
    *,
    device: str = "auto",
    dtype: str = "auto",
    threads: int = 0,
    workload: Workload | None = None,
    progress: Progress = lambda stage, fraction: None,
) -> Pair:
    """Obtain and load a pair.

    Args:
        device, dtype: names of `engine.config.settings`; `auto` is resolved here (read what it
            became from `pair.target.device` and `.dtype`).
        threads: CPU threads for torch; 0 leaves torch's own choice.
        workload: what it is loaded for; before the weights are, it is checked to fit.
        progress: called with each stage; an exception that it raises cancels.

    Raises:
        UserError: the pair, the device or the dtype is unknown, weights cannot be had, the
            tokenizers differ, or the memory will not do.
    """
    spec = resolve(request)
    where = resolve_device(device)
    beside = where if spec.draft_device is None else resolve_device(spec.draft_device)
    # The toy's random logits lie close together: in bfloat16 its ties would say nothing.
    exact = spec.kind == "toy" and dtype == "auto"
    kind = torch.float32 if exact else resolve_dtype(dtype, where)
    use_threads(threads)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    job = Job(spec, where, beside, kind, workload, progress)
    parts = {"toy": _toy, "smollm2": _smollm2, "models": _models}[spec.kind](job)
    if spec.draft == NGRAM or spec.draft.endswith(NGRAM_FILES):
        parts = replace(parts, ngrams=_ngrams(spec, parts.target))
    elif spec.draft in SMOLLM2_DRAFTS:
        parts = _with_built_in_draft(parts, job)
    elif parts.draft is None and spec.draft != LOOKUP:
        parts = _with_other_draft(parts, job)
    if spec.kind == "smollm2" and parts.draft is not None:
        parts = replace(parts, ngrams=_built_in_ngrams(parts.target))  # for --prompt-lookup
    if beside != where:
        parts = replace(parts, draft=_moved(parts, beside))
    return _pair(parts)


class _Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a pair is put together from. The models are on their device."""

    spec: PairSpec
    target: Any
    tokenizer: Any | None
    draft: Any | None = None
    hot_ids: torch.Tensor | None = None
    never: torch.Tensor | None = None
    ngrams: NgramTable | None = None
    eagle: EagleDraft | None = None
    """Where the draft reads the target's states."""


def _ngrams(spec: PairSpec, target: Any) -> NgramTable:
    """The built-in target's n-grams, or those in a file of the user's own."""
    vocabulary = vocabulary_of(target)
    if spec.draft != NGRAM:
        return NgramTable.load(Path(spec.draft), vocabulary)
    if spec.kind != "smollm2":
        raise UserError(
            f"there are no n-grams of {spec.target}; make some with `batchspec-tui ngram`, "
            "or use --draft lookup"
        )
    return _built_in_ngrams(target)


def _built_in_ngrams(target: Any) -> NgramTable:
    with resources.as_file(resources.files("engine.pairs").joinpath(SMOLLM2_NGRAMS)) as place:
        return NgramTable.load(place, vocabulary_of(target))


def _toy(job: Job) -> _Parts:
    from engine.pairs.toy import toy_models, toy_tokenizer

    job.progress("building the toy pair", None)
    target, draft = toy_models(dtype=job.dtype)
    return _Parts(
        spec=job.spec,
        target=target.to(job.device),
        tokenizer=toy_tokenizer(),
        draft=draft.to(job.device) if job.spec.draft == TOY_DRAFT else None,
    )


def _smollm2(job: Job) -> _Parts:
    spec, progress = job.spec, job.progress
    directory = smollm2.acquire(progress)
    tokenizer = load_tokenizer(directory, spec.target)
    require_room(job, directory, tokenizer)
    progress("loading the target", None)
    target = load_model(directory, spec.target, job.dtype, job.device)
    return _Parts(spec=spec, target=target, tokenizer=tokenizer)


def _models(job: Job) -> _Parts:
    spec, progress = job.spec, job.progress
    directory = hub.obtain(spec.target, spec.target_revision, progress)
    tokenizer = load_tokenizer(directory, spec.target)
    max_memory = require_room(job, directory, tokenizer)
    progress(f"loading {spec.target}", None)
    target = load_model(directory, spec.target, job.dtype, job.device, max_memory=max_memory)
    return _Parts(spec=spec, target=target, tokenizer=tokenizer)


def _with_other_draft(parts: _Parts, job: Job) -> _Parts:
    """With the draft that the spec names. It is checked to share the target's tokenizer, as far
    as both know a token; what `distill` writes does so, and may have a hot vocabulary."""
    spec, progress = parts.spec, job.progress
    if is_compact(spec.draft):
        progress(f"loading {spec.draft}", None)
        return _with_compact(parts, Path(spec.draft), job)
    directory = hub.obtain(spec.draft, spec.draft_revision, progress)
    never = _never(parts, load_tokenizer(directory, spec.draft))
    progress(f"loading {spec.draft}", None)
    draft = load_model(directory, spec.draft, job.dtype, job.beside)
    columns = min(vocabulary_of(draft), vocabulary_of(parts.target))
    kept = [token for token in never if token < columns]
    return replace(
        parts, draft=draft, never=torch.tensor(kept, device=job.beside) if kept else None
    )


def _with_built_in_draft(parts: _Parts, job: Job) -> _Parts:
    """One of the two drafts that come with the built-in target."""
    spec = job.spec
    if spec.kind != "smollm2":
        raise UserError(
            f"'{spec.draft}' is a draft of smollm2, and there is none of {spec.target}; make one "
            "with `batchspec-tui distill`, or use --draft lookup"
        )
    job.progress("loading the draft", None)
    packed = resources.files("engine.pairs").joinpath(SMOLLM2_DRAFTS[spec.draft])
    with resources.as_file(packed) as place:
        return _with_compact(parts, place, job)


def _with_compact(parts: _Parts, directory: Path, job: Job) -> _Parts:
    """With a draft that `distill` made."""
    if is_eagle_draft(directory):
        student, hot_ids = load_eagle_draft(directory, parts.target, job.dtype)
        return replace(parts, draft=student.draft, hot_ids=hot_ids, eagle=student)
    draft, hot_ids = load_compact(directory, parts.target, job.dtype)
    return replace(parts, draft=draft, hot_ids=hot_ids)


def _never(parts: _Parts, theirs: Any | None) -> list[int]:
    """The ids that the draft must not draft.

    Raises:
        UserError: a token that both know has two ids: the pair cannot work.
    """
    spec = parts.spec
    target = Tokenizer(parts.tokenizer, name=spec.target, eos_ids=())
    draft = Tokenizer(theirs, name=spec.draft, eos_ids=())
    difference = first_difference(target, draft)
    if difference:
        raise UserError(
            f"the tokenizers of {spec.target} and {spec.draft} differ: {difference}; "
            "a draft must share the target's tokenizer (or use --draft lookup)"
        )
    return known_to_one(target, draft)


def _moved(parts: _Parts, device: torch.device) -> Any:
    """The draft on a device of its own.

    Raises:
        UserError: it uses weights of the target's.
    """
    spec, draft = parts.spec, parts.draft
    if draft is None:
        return None
    own = {weight.data_ptr() for weight in parts.target.parameters()}
    if any(weight.data_ptr() in own for weight in draft.parameters()):
        raise UserError(
            f"--draft-device {spec.draft_device}: {spec.draft} shares weights with its target, "
            "so it runs where the target does"
        )
    return draft.to(device)


def _pair(parts: _Parts) -> Pair:
    spec = parts.spec
    eos_ids = eos_ids_of(parts.target, parts.tokenizer)
    tokenizer = wrap(spec, parts.tokenizer, parts.target.config, eos_ids)
    target = LanguageModel(parts.target, eos_ids=eos_ids, name=spec.target)
    draft: LanguageModel | None = None
    eagle = parts.eagle
    if eagle is not None:
        target.reader = EagleReader(parts.target, eagle.features, target.layers)
        draft = EagleModel(
            parts.draft, eagle.fusion, hot_ids=parts.hot_ids, eos_ids=eos_ids, name=spec.draft
        )
    elif parts.draft is not None:
        draft = LanguageModel(parts.draft, hot_ids=parts.hot_ids, eos_ids=eos_ids, name=spec.draft)
    elsewhere = draft is not None and draft.device != target.device
    info = PairInfo(
        name=spec.name,
        target=spec.target_name,
        draft=spec.draft_name,
        tokenizer=tokenizer.name,
        target_layers=target.layers,
        draft_layers=draft.layers if draft is not None else 0,
        vocabulary=target.vocabulary,
        context=target.context,
        kv_bytes_per_token=target.kv_bytes_per_token,
        eos_ids=eos_ids,
        pad_id=tokenizer.pad_id,
        thinking=spec.thinking,
        draft_device=str(draft.device) if draft is not None and elsewhere else "",
    )
    return Pair(
        info=info,
        target=target,
        draft=draft,
        tokenizer=tokenizer,
        ngrams=parts.ngrams,
        never=parts.never,
        prompt_lookup=spec.prompt_lookup,
    )
