"""Whether a pair, and what it is loaded for, will fit into the memory; before it is loaded."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import torch

from engine.config.settings import Settings
from engine.models.architectures import context_of
from engine.models.device_memory import free_bytes, needs, require
from engine.models.draft_format import is_compact
from engine.models.memory_estimate import Demand, Sizes, demand_of
from engine.pairs import hub
from engine.pairs.components import wrap
from engine.pairs.device_map import shares, spread_over
from engine.pairs.job import Job
from engine.pairs.registry import DRAFT_MODEL, EAGLE, MODEL_FREE, NGRAM_FILES
from engine.pairs.sizes_on_disk import config_of, sizes_of_compact, sizes_of_directory
from engine.text.prompts import encode_prompts

SMOLLM2_DRAFTS = {DRAFT_MODEL: "weights/smollm2_draft", EAGLE: "weights/smollm2_eagle"}


def require_room(job: Job, directory: Path, hf: Any | None) -> dict[int, int] | None:
    """Check that what the pair is loaded for will fit, before its weights are.

    Args:
        directory, hf: the target's, and its tokenizer.

    Returns:
        Bytes of weights for each GPU, if the target needs several.

    Raises:
        UserError: it will not fit, with the setting to lower.
    """
    workload = job.workload
    if workload is None:
        return None
    job.progress("reckoning the memory", None)
    config = config_of(directory, job.spec.target)
    sizes = sizes_of_directory(directory, config, job.dtype, job.device)
    target, draft = (sizes, job.device), _weigh_draft(job, sizes)
    context = context_of(config)
    tokenizer = wrap(job.spec, hf, config, ())
    prompts = encode_prompts(workload.prompts, tokenizer, workload.chat, context)
    lengths = [len(prompt.ids) for prompt in prompts if prompt.error is None]

    def demand(settings: Settings) -> Demand:
        return demand_of(settings, lengths, context)

    asked = needs(target, draft, [demand(settings) for settings in workload.lanes])
    free = {device: free_bytes(device) for device in asked}
    max_memory = spread_over(job.device, asked[job.device], free[job.device])
    if max_memory is not None:
        free[job.device] = sum(max_memory.values())
    require(target, draft, workload.lanes, demand, free=free)
    return max_memory and shares(max_memory, asked[job.device])


def _weigh_draft(job: Job, target: Sizes) -> tuple[Sizes, torch.device] | None:
    """The draft's sizes and device; None where there is no draft model."""
    spec = job.spec
    if spec.draft in MODEL_FREE or spec.draft.endswith(NGRAM_FILES):
        return None
    if spec.draft in SMOLLM2_DRAFTS:
        packed = resources.files("engine.pairs").joinpath(SMOLLM2_DRAFTS[spec.draft])
        with resources.as_file(packed) as place:
            if not is_compact(place):
                return None
            return sizes_of_compact(place, target, job.dtype, job.device), job.device
    if is_compact(spec.draft):
        return sizes_of_compact(Path(spec.draft), target, job.dtype, job.device), job.device
    directory = hub.obtain(spec.draft, spec.draft_revision, job.progress)
    config = config_of(directory, spec.draft)
    return sizes_of_directory(directory, config, job.dtype, job.beside), job.beside
