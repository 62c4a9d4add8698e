"""Memory: whether a device has what a run will need, and what to lower where it has not."""

from __future__ import annotations

import dataclasses
import resource
import sys
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import torch
from msgspec.structs import replace

from engine.config.errors import UserError
from engine.config.settings import Settings
from engine.models.memory_estimate import (
    Demand,
    Need,
    Sizes,
    demand_of,
    need_of,
    sizes_of,
    together,
)

if TYPE_CHECKING:
    from engine.models.causal_lm import LanguageModel

Placed = tuple[Sizes, torch.device]
"""A model's sizes, and the device that it is on."""

Demands = Callable[[Settings], Demand]
"""What a run would be like under other settings."""


def needs(target: Placed, draft: Placed | None, demands: Seq[Demand]) -> dict[torch.device, Need]:
    """What each device must have for these runs, side by side on the same models.

    Where there are several, the oracle is beside them.
    """
    found: dict[torch.device, Need] = {}
    for model, drafts in ((target, False), (draft, True)):
        if model is not None:
            sizes, device = model
            lanes = [need_of(sizes, demand, drafts=drafts) for demand in demands]
            if len(demands) > 1 and not drafts:
                lanes.append(need_of(sizes, dataclasses.replace(demands[0], method="eqspec")))
            need = together(lanes)
            found[device] = found.get(device, Need()) + need
    return found


def require(
    target: Placed,
    draft: Placed | None,
    lanes: Seq[Settings],
    demand: Demands,
    *,
    free: Mapping[torch.device, int] | None = None,
) -> None:
    """Refuse runs that cannot fit, before anything is taken.

    Args:
        lanes: the settings of each of the runs, which are there at the same time.
        demand: what settings come to.
        free: bytes; None: what the devices have now.

    Raises:
        UserError: with the estimate, and the setting to lower.
    """
    asked = needs(target, draft, [demand(settings) for settings in lanes])
    there = {device: free_bytes(device) for device in asked} if free is None else free

    def fits(**changes: int) -> bool:
        changed = [demand(replace(settings, **changes)) for settings in lanes]
        found = needs(target, draft, changed)
        return all(need.total <= there[device] for device, need in found.items())

    for device, need in asked.items():
        if need.total > there[device]:
            raise UserError(
                f"{_runs(lanes)} about {_gb(need.total)} GB on {device}"
                f"{_parts(need)}, and {_gb(there[device])} GB are free: "
                f"{_to_lower(lanes, need, there[device], target[0].itemsize, fits)}"
            )


def require_memory(
    target: LanguageModel,
    draft: LanguageModel | None,
    lanes: Seq[Settings],
    lengths: Seq[int],
    *,
    longest: int = 0,
    free: int | None = None,
) -> None:
    """Refuse runs of loaded models that cannot fit, before they begin.

    Args:
        lanes: see `require`.
        lengths: tokens of each prompt.
        longest: tokens of the longest row, where rows go on from beyond their prompts.
        free: bytes on each device; None: what there is now.

    Raises:
        UserError: see `require`.
    """

    def demand(chosen: Settings) -> Demand:
        found = demand_of(chosen, lengths, target.context)
        return dataclasses.replace(found, longest=max(found.longest, longest))

    models = [target] if draft is None else [target, draft]
    placed = [(sizes_of(model), model.device) for model in models]
    there = None if free is None else {device: free for _, device in placed}
    require(placed[0], placed[1] if len(placed) > 1 else None, lanes, demand, free=there)


def _runs(lanes: Seq[Settings]) -> str:
    return "this run needs" if len(lanes) == 1 else f"{len(lanes)} runs side by side need"


def _parts(need: Need) -> str:
    weights = f"weights {_gb(need.weights)}, " if need.weights else "beside the weights: "
    return f" ({weights}K/V {_gb(need.kv)}, logits {_gb(need.logits)}, work {_gb(need.work)})"


def _to_lower(
    lanes: Seq[Settings],
    need: Need,
    free: int,
    itemsize: int,
    fits: Callable[..., bool],
) -> str:
    """The setting that has to be lowered, and how far."""
    if need.weights > free:
        smaller = "--dtype bfloat16 halves them; else " if itemsize == 4 else ""
        return f"the weights alone do not fit; {smaller}take a smaller model, or another --device"
    for name in ("batch_size", "max_new_tokens", "draft_tokens"):
        present = [value for s in lanes if isinstance(value := getattr(s, name), int)]
        largest = _largest(max(present, default=0), partial(_fits_with, fits, name))
        if largest:
            return f"lower --{name.replace('_', '-')} to {largest}"
    rest = "; or compare fewer methods" if len(lanes) > 1 else ""
    return f"lower --batch-size to 1, and --max-new-tokens{rest}"


def _fits_with(fits: Callable[..., bool], name: str, value: int) -> bool:
    return fits(**{name: value})


def _largest(present: int, fits: Callable[[int], bool]) -> int:
    """The largest value below the present one that fits; 0: none does."""
    if present <= 1 or not fits(1):
        return 0
    low, high = 1, present
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f}" if count >= 1e8 else f"{count / 1e9:.3f}"


def free_bytes(device: torch.device) -> int:
    """Memory that is still to be had on a device."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    return min(int(psutil.virtual_memory().available), _container_free())


def _container_free(root: Path = Path("/sys/fs/cgroup")) -> int:
    """What a container's limit leaves, where there is one: nobody asks before it kills."""
    try:
        limit = int((root / "memory.max").read_text())
        used = int((root / "memory.current").read_text())
        stats = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return sys.maxsize
    return max(0, limit - used + int(stats.get("inactive_file", 0)))


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory in use so far: the allocator's peak on CUDA, else the process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
