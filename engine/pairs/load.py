"""From a request to two models and a tokenizer, ready to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

import torch
from msgspec.structs import replace
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from engine.device import resolve_device, resolve_dtype
from engine.errors import UserError
from engine.model import LanguageModel
from engine.pairs import hub, smollm2
from engine.pairs.registry import LOOKUP, PairRequest, PairSpec, resolve
from engine.records import PairInfo
from engine.tokenizer import Tokenizer, first_difference

Progress = Callable[[str, float | None], None]

_FIRST_LAYERS = 6
"""Layers of the stand-in draft: the target's first ones, with the target's own head."""


@dataclass(frozen=True)
class Pair:
    """Two models that share a tokenizer. `draft` None: proposals from the row's own text."""

    info: PairInfo
    target: LanguageModel
    draft: LanguageModel | None
    tokenizer: Tokenizer


def load_pair(
    request: PairRequest,
    *,
    device: str = "auto",
    dtype: str = "auto",
    threads: int = 0,
    progress: Progress = lambda stage, fraction: None,
) -> Pair:
    """Obtain and load a pair.

    Args:
        device, dtype: names of `engine.settings`; `auto` is resolved here (read what it
            became from `pair.target.device` and `.dtype`).
        threads: CPU threads for torch; 0 leaves torch's own choice.
        progress: called with each stage; an exception that it raises cancels.

    Raises:
        UserError: the pair, the device or the dtype is unknown, weights cannot be had, or
            the tokenizers differ.
    """
    spec = resolve(request)
    where = resolve_device(device)
    # The toy's random logits lie close together: in bfloat16 its ties would say nothing.
    exact = spec.kind == "toy" and dtype == "auto"
    kind = torch.float32 if exact else resolve_dtype(dtype, where)
    if threads:
        torch.set_num_threads(threads)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    if spec.kind == "toy":
        return _toy(spec, where, kind, progress)
    if spec.kind == "smollm2":
        return _smollm2(spec, where, kind, progress)
    return _models(spec, where, kind, progress)


def _toy(spec: PairSpec, device: torch.device, dtype: torch.dtype, progress: Progress) -> Pair:
    from engine.pairs.toy import toy_models, toy_tokenizer

    progress("building the toy pair", None)
    target, draft = toy_models(dtype=dtype)
    return _pair(
        spec,
        target.to(device),
        draft.to(device) if spec.draft == "toy draft" else None,
        toy_tokenizer(),
        device=device,
        progress=progress,
    )


def _smollm2(spec: PairSpec, device: torch.device, dtype: torch.dtype, progress: Progress) -> Pair:
    directory = smollm2.acquire(progress)
    progress("loading the target", None)
    target = _load(str(directory), None, dtype).to(device)
    if spec.draft != "built-in draft":
        return _pair(spec, target, None, _tokenizer(str(directory), None), device, progress)
    progress("loading the draft", None)
    draft, hot_ids = _built_in_draft(target, dtype)
    if hot_ids is not None:
        hot_ids = hot_ids.to(device)
    else:
        spec = replace(spec, draft=f"the target's first {_FIRST_LAYERS} layers")
    tokenizer = _tokenizer(str(directory), None)
    return _pair(spec, target, draft.to(device), tokenizer, device, progress, hot_ids)


def _built_in_draft(target: Any, dtype: torch.dtype) -> tuple[Any, torch.Tensor | None]:
    """The draft that comes with the program: the model, and its hot vocabulary."""
    packed = resources.files("engine").joinpath("weights/smollm2_draft")
    if packed.is_dir() and any(packed.iterdir()):
        from engine.distill.package import load_compact

        with resources.as_file(packed) as directory:
            return load_compact(directory, target, dtype)
    return first_layers(target, _FIRST_LAYERS), None


def first_layers(target: Any, layers: int) -> Any:
    """A draft made of the target's first layers and its head; the weights are shared."""
    config = type(target.config).from_dict(target.config.to_dict())
    config.num_hidden_layers = layers
    with torch.device("meta"):
        draft = type(target)(config)
    draft.load_state_dict(target.state_dict(), strict=False, assign=True)
    draft.model.rotary_emb = target.model.rotary_emb
    draft.tie_weights()
    return draft.eval()


def _models(spec: PairSpec, device: torch.device, dtype: torch.dtype, progress: Progress) -> Pair:
    progress(f"loading {spec.target}", None)
    target = _load(spec.target, spec.target_revision, dtype).to(device)
    tokenizer = _tokenizer(spec.target, spec.target_revision)
    return _pair(spec, target, None, tokenizer, device, progress)


def _pair(
    spec: PairSpec,
    target: Any,
    draft: Any | None,
    hf_tokenizer: Any | None,
    device: torch.device,
    progress: Progress,
    hot_ids: torch.Tensor | None = None,
) -> Pair:
    """Put the parts together; a draft that is no built-in one is loaded here."""
    eos_ids = _eos_ids(target, hf_tokenizer)
    tokenizer = _wrap(hf_tokenizer, spec.target, eos_ids, target)
    draft_name = spec.draft
    if draft is None and spec.draft != LOOKUP:
        progress(f"loading {spec.draft}", None)
        draft = _load(spec.draft, spec.draft_revision, target.dtype).to(device)
        theirs = _wrap(_tokenizer(spec.draft, spec.draft_revision), spec.draft, eos_ids, draft)
        difference = first_difference(tokenizer, theirs)
        if difference:
            raise UserError(
                f"the tokenizers of {spec.target} and {spec.draft} differ: {difference}; "
                "a draft must share the target's tokenizer (or use --draft lookup)"
            )
    ours = LanguageModel(target, eos_ids=eos_ids, name=spec.target)
    small = (
        LanguageModel(draft, hot_ids=hot_ids, eos_ids=eos_ids, name=draft_name)
        if draft is not None
        else None
    )
    info = PairInfo(
        name=spec.name,
        target=spec.target,
        draft=draft_name,
        tokenizer=tokenizer.name,
        target_layers=ours.layers,
        draft_layers=small.layers if small else 0,
        vocabulary=ours.vocabulary,
        context=ours.context,
        kv_bytes_per_token=ours.kv_bytes_per_token,
        eos_ids=eos_ids,
        pad_id=tokenizer.pad_id,
    )
    return Pair(info=info, target=ours, draft=small, tokenizer=tokenizer)


def _wrap(hf: Any | None, name: str, eos_ids: tuple[int, ...], model: Any) -> Tokenizer:
    config = model.config.get_text_config()
    bos = getattr(hf, "bos_token_id", None)
    return Tokenizer(
        hf,
        name=name,
        eos_ids=eos_ids,
        pad_id=getattr(hf, "pad_token_id", None),
        bos_id=bos if bos is not None else _first(config.bos_token_id),
        vocabulary=None if hf is not None else config.vocab_size,
    )


def _eos_ids(model: Any, hf_tokenizer: Any | None) -> tuple[int, ...]:
    """Every end of the generation config; else of the config; else the tokenizer's."""
    for holder in (
        getattr(model, "generation_config", None), model.config.get_text_config(), hf_tokenizer
    ):  # fmt: skip
        value = getattr(holder, "eos_token_id", None)
        if value is not None:
            found = [value] if isinstance(value, int) else value
            return tuple(dict.fromkeys(int(token) for token in found))
    return ()


def _first(value: Any) -> int | None:
    if isinstance(value, list):
        return int(value[0]) if value else None
    return None if value is None else int(value)


def _load(path_or_id: str, revision: str | None, dtype: torch.dtype) -> Any:
    place = hub.locate(path_or_id, revision)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            place.name, revision=revision, local_files_only=place.local, dtype=dtype
        )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        raise UserError(hub.cannot_load(path_or_id, error)) from error
    return model.eval()


def _tokenizer(path_or_id: str, revision: str | None) -> Any | None:
    """None where the model comes without one: token ids can then be given and shown."""
    place = hub.locate(path_or_id, revision)
    if not hub.has_tokenizer(place):
        return None
    try:
        return AutoTokenizer.from_pretrained(
            place.name, revision=revision, local_files_only=place.local
        )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        raise UserError(hub.cannot_load(f"the tokenizer of {path_or_id}", error)) from error
