"""A target that is too large for one GPU, over several: accelerate places its layers.

The engine needs nothing for it: every tensor goes to the device of the layer that it meets.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch

from engine.config.errors import UserError
from engine.models.device_memory import free_bytes
from engine.models.memory_estimate import Need

INSTALL = "pip install 'batchspec-tui[multi-gpu]'"


def spread_over(device: torch.device, need: Need, free: int) -> dict[int, int] | None:
    """Free bytes of each GPU, where one will not do and there are more; else None.

    Args:
        device: without an index, where any GPU may be used.
        free: bytes on the first one.

    Raises:
        UserError: accelerate is not there.
    """
    count = torch.cuda.device_count() if str(device) == "cuda" else 0
    if count < 2 or need.total <= free:
        return None
    if find_spec("accelerate") is None:
        raise UserError(
            f"this run needs about {need.total / 1e9:.1f} GB, more than one GPU has; to use all "
            f"{count}, {INSTALL}"
        )
    return {index: free_bytes(torch.device("cuda", index)) for index in range(count)}


def shares(free: dict[int, int], need: Need) -> dict[int, int]:
    """Bytes of weights that each GPU takes at most, so that K/V and the rest fit beside them."""
    part = min(1.0, 1.1 * need.weights / max(need.total, 1))
    return {index: int(part * there) for index, there in free.items()}
