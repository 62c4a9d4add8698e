"""An EAGLE-style draft on the disk and on its target's shoulders."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.config.errors import UserError
from engine.models.cut_draft import build_draft
from engine.models.draft_format import fill, read, read_facts, target_shape, write
from engine.models.eagle import Features, Fusion
from engine.models.eagle_unroll import EagleStudent

READS = "reads"
"""In ``draft.json``: the target's layers whose states the draft reads, beside the final one."""


def build_eagle_draft(
    target: Any,
    layers: Sequence[int],
    reads: Sequence[int],
    hot_ids: Tensor,
    dtype: torch.dtype | None = None,
) -> EagleStudent:
    """An EAGLE-style draft of some of the target's layers, the wire to which is still to be fitted.

    Embedding and head are the target's and frozen; the final norm is a copy of its own.
    """
    bad = [layer for layer in reads if not 0 <= layer < len(target.model.layers)]
    if bad:
        raise UserError(f"the target has no layer {bad[0]} to read")
    draft = build_draft(target, layers, hot_ids, dtype)
    draft.model.norm = copy.deepcopy(draft.model.norm).requires_grad_(True)
    hidden = target.config.hidden_size
    features, fusion = Features(hidden, reads), Fusion(hidden)
    place = draft.lm_head.weight
    student = EagleStudent(draft, fusion, features)
    features.to(place.device, place.dtype)
    fusion.to(place.device, place.dtype)
    return student


def trained(student: EagleStudent) -> dict[str, Tensor]:
    """Everything of it that is its own."""
    parts = {
        "layers": student.model.layers,
        "norm": student.model.norm,
        "fusion": student.fusion,
        "features": student.features,
    }
    return {
        f"{part}.{name}": value
        for part, module in parts.items()
        for name, value in module.state_dict().items()
    }


def save_eagle_draft(
    directory: Path | str,
    student: EagleStudent,
    layers: Sequence[int],
    hot_ids: Tensor,
    *,
    int8: bool = True,
    figures: dict[str, Any] | None = None,
) -> Path:
    """Write what is the draft's own into ``directory``."""
    facts = {
        "layers": list(layers),
        READS: list(student.features.layers),
        "target": target_shape(student.draft.config),
        **(figures or {}),
    }
    return write(Path(directory), trained(student), hot_ids, facts, int8=int8)


def is_eagle_draft(directory: Path | str) -> bool:
    """Whether a compact draft reads its target's states."""
    return READS in read_facts(directory)


def load_eagle_draft(
    directory: Path | str, target_model: Any, dtype: torch.dtype | None = None
) -> tuple[EagleStudent, Tensor]:
    """The draft, and its hot ids: logit column j is token ``hot_ids[j]``."""
    directory = Path(directory)
    facts = read_facts(directory)
    state, hot_ids = read(directory, facts, target_model)
    student = build_eagle_draft(target_model, facts["layers"], facts[READS], hot_ids, dtype)
    for part, module in (
        ("layers", student.model.layers),
        ("norm", student.model.norm),
        ("fusion", student.fusion),
        ("features", student.features),
    ):
        prefix = f"{part}."
        mine = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        fill(directory, module, mine)
    student.requires_grad_(False)
    return student, hot_ids.to(student.lm_head.weight.device)
