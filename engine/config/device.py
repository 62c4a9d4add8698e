"""Which device and number format a run uses: what `auto` means, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from engine.config.errors import UserError

DTYPE_OF = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def resolve_device(name: str) -> torch.device:
    """The device of a name; `auto` prefers CUDA, then MPS, then the CPU.

    Raises:
        UserError: an unknown name, or a device that this machine does not have.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise UserError(f"unknown --device '{name}'; choose auto, cpu, cuda or mps")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            found = f"{count} found" if count else "none found"
            raise UserError(f"--device {name}: no such CUDA device ({found}); use --device cpu")
    if device.type == "mps" and not _has_mps():
        raise UserError("--device mps: this machine has no MPS device; use --device cpu")
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype of a name; `auto` is bfloat16 where the device computes in it natively, float16
    on CUDA devices that are fast in that alone, else float32.

    Raises:
        UserError: an unknown name, or one that the device cannot compute in.
    """
    if name == "auto":
        if has_bfloat16(device):
            return torch.bfloat16
        return torch.float16 if _has_fast_float16(device) else torch.float32
    if name not in DTYPE_OF:
        names = ", ".join(["auto", *DTYPE_OF])
        raise UserError(f"unknown --dtype '{name}'; choose one of {names}")
    if name == "float64" and device.type == "mps":
        raise UserError("--dtype float64: MPS has no float64; use --device cpu or --dtype float32")
    return DTYPE_OF[name]


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device has bfloat16 instructions of its own (emulated ones do not count)."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type == "cpu" and bool(cpu_bfloat16())


def _has_fast_float16(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0)


def cpu_bfloat16() -> tuple[str, ...]:
    """The CPU's bfloat16 instruction sets: of `amx_bf16`, `avx512_bf16`, `arm_bf16`."""
    described: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    found = [name for name in ("amx_bf16", "avx512_bf16") if described.get(name)]
    if described.get("bf16"):
        found.append("arm_bf16")
    if not described:  # releases of torch before get_capabilities
        for probe, name in (
            ("_is_amx_tile_supported", "amx_bf16"),
            ("_is_avx512_bf16_supported", "avx512_bf16"),
        ):
            if getattr(torch.cpu, probe, bool)():
                found.append(name)
    return tuple(found)


def use_threads(count: int) -> None:
    """Let torch compute with this many CPU threads; 0 leaves its own choice."""
    if count:
        torch.set_num_threads(count)


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32: the name that settings and JSON carry."""
    return str(dtype).removeprefix("torch.")


def _has_mps() -> bool:
    return bool(torch.backends.mps.is_available())
