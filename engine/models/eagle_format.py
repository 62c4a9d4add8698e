"""An EAGLE-style draft: its parts, and how they are written and read."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.config.errors import UserError
from engine.models.cut_draft import build_draft
from engine.models.draft_format import fill, read, read_facts, target_shape, write
from engine.models.eagle import Features, Fusion

READS = "reads"
"""In ``draft.json``: the target's layers whose states the draft reads, beside the final one."""


class EagleDraft(nn.Module):
    """The parts of an EAGLE-style draft: a few layers, and what hands them their input.

    Args:
        draft: a causal LM of the target's width, with a head over the hot vocabulary.
        fusion, features: what makes their input of the target's hidden states.
    """

    def __init__(self, draft: Any, fusion: Fusion, features: Features) -> None:
        super().__init__()
        self.draft, self.fusion, self.features = draft, fusion, features

    @property
    def model(self) -> Any:
        return self.draft.model

    @property
    def lm_head(self) -> Any:
        return self.draft.lm_head


def build_eagle_draft(
    target: Any,
    layers: Sequence[int],
    reads: Sequence[int],
    hot_ids: Tensor,
    dtype: torch.dtype | None = None,
) -> EagleDraft:
    """An EAGLE-style draft of some of the target's layers, whose features are still to be fitted.

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
    eagle = EagleDraft(draft, fusion, features)
    features.to(place.device, place.dtype)
    fusion.to(place.device, place.dtype)
    return eagle


def trained(draft: EagleDraft) -> dict[str, Tensor]:
    """Everything of it that is its own."""
    return {
        f"{part}.{name}": value
        for part, module in _parts(draft).items()
        for name, value in module.state_dict().items()
    }


def _parts(draft: EagleDraft) -> dict[str, nn.Module]:
    return {
        "layers": draft.model.layers,
        "norm": draft.model.norm,
        "fusion": draft.fusion,
        "features": draft.features,
    }


def save_eagle_draft(
    directory: Path | str,
    draft: EagleDraft,
    layers: Sequence[int],
    hot_ids: Tensor,
    *,
    int8: bool = True,
    figures: dict[str, Any] | None = None,
) -> Path:
    """Write what is the draft's own into ``directory``."""
    facts = {
        "layers": list(layers),
        READS: list(draft.features.layers),
        "target": target_shape(draft.draft.config),
        **(figures or {}),
    }
    return write(Path(directory), trained(draft), hot_ids, facts, int8=int8)


def is_eagle_draft(directory: Path | str) -> bool:
    """Whether a compact draft reads its target's states."""
    return READS in read_facts(directory)


def load_eagle_draft(
    directory: Path | str, target_model: Any, dtype: torch.dtype | None = None
) -> tuple[EagleDraft, Tensor]:
    """The draft, and its hot ids: logit column j is token ``hot_ids[j]``."""
    directory = Path(directory)
    facts = read_facts(directory)
    state, hot_ids = read(directory, facts, target_model)
    draft = build_eagle_draft(target_model, facts["layers"], facts[READS], hot_ids, dtype)
    for part, module in _parts(draft).items():
        prefix = f"{part}."
        mine = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        fill(directory, module, mine)
    draft.requires_grad_(False)
    return draft, hot_ids.to(draft.lm_head.weight.device)
