"""Between the host and a device: what crosses in a round, and what is waited for.

A copy that is waited for stops the program until the device has caught up. So what a
round needs on the host crosses together, into pinned memory, and is waited for once;
what goes to the device is queued from pinned memory and never waited for.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
import torch
from torch import Tensor

Integers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device. From the host to CUDA the copy is only queued."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class Everywhere:
    """A tensor and its copies on the devices that need it, each made once.

    The layers of a model may lie on several devices, and each wants the same indices.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._copies: dict[torch.device, Tensor] = {tensor.device: tensor}

    def on(self, device: torch.device) -> Tensor:
        """The tensor on a device."""
        if device not in self._copies:
            self._copies[device] = to_device(self.tensor, device)
        return self._copies[device]


def fill(buffer: Tensor, tensor: Tensor) -> None:
    """Copy a tensor into a buffer of its shape. From the host to CUDA the copy is only queued."""
    if buffer.device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    buffer.copy_(tensor, non_blocking=True)


class Crossing:
    """Whole numbers on their way to the host: begun at once, read when they are needed.

    Args:
        tensors: int64, of any shapes. Those of one device cross in one copy.
    """

    def __init__(self, tensors: Seq[Tensor]) -> None:
        self._shapes = [tuple(tensor.shape) for tensor in tensors]
        self._sizes = [tensor.numel() for tensor in tensors]
        self._devices = [tensor.device for tensor in tensors]
        self._copies = {
            device: _Copy([tensor for tensor in tensors if tensor.device == device])
            for device in dict.fromkeys(self._devices)
        }

    def arrived(self) -> list[Integers]:
        """The numbers, in the order and shapes in which they were given.

        On CUDA this waits for the copies, and so for what was queued before them.
        """
        landed = {device: copy.landed() for device, copy in self._copies.items()}
        taken = dict.fromkeys(landed, 0)
        arrays: list[Integers] = []
        for device, size, shape in zip(self._devices, self._sizes, self._shapes, strict=True):
            start = taken[device]
            arrays.append(landed[device][start : start + size].reshape(shape))
            taken[device] = start + size
        return arrays


class _Copy:
    """One copy from one device, and the event that it has been made."""

    def __init__(self, tensors: Seq[Tensor]) -> None:
        joined = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self._made: torch.cuda.Event | None = None
        if joined.device.type != "cuda":
            self._host = joined.cpu()
            return
        self._host = torch.empty(joined.shape, dtype=joined.dtype, pin_memory=True)
        self._host.copy_(joined, non_blocking=True)
        self._made = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._made.record(torch.cuda.current_stream(joined.device))

    def landed(self) -> Integers:
        if self._made is not None:
            self._made.synchronize()
        host: Integers = self._host.numpy()
        return host
