"""What this machine offers: versions, devices, number formats, memory, weights found."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import psutil
import torch
from huggingface_hub import constants

from engine.config.device import (
    cpu_bfloat16,
    dtype_name,
    has_bfloat16,
    resolve_device,
    resolve_dtype,
)
from engine.config.errors import UserError
from engine.config.paths import cache_dir, config_dir, log_dir
from engine.config.versions import versions
from engine.models.device_memory import free_bytes
from engine.pairs import smollm2
from engine.pairs.registry import all_pairs
from engine.pairs.state import state_of

PACKAGES = (
    "batchspec-tui",
    "torch",
    "transformers",
    "tokenizers",
    "accelerate",
    "safetensors",
    "textual",
    "rich",
)


def describe() -> dict[str, Any]:
    """Plain values, ready for a table or for JSON."""
    chosen = resolve_device("auto")
    return {
        "versions": versions(PACKAGES),
        "platform": platform.platform(),
        "devices": _devices(),
        "auto": {"device": str(chosen), "dtype": dtype_name(resolve_dtype("auto", chosen))},
        "cuda": _cuda(),
        "memory": _memory(),
        "weights": _weights(),
        "pairs": _pairs(),
        "places": {
            "cache": str(cache_dir()),
            "hub's cache": str(constants.HF_HUB_CACHE),
            "configuration": str(config_dir()),
            "logs": str(log_dir()),
        },
    }


def _devices() -> list[dict[str, Any]]:
    cpu = torch.device("cpu")
    described: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    devices: list[dict[str, Any]] = [
        {
            "name": "cpu",
            "model": str(described.get("cpu_name") or platform.processor() or "unknown"),
            "threads": torch.get_num_threads(),
            "bfloat16": has_bfloat16(cpu),
            "instructions": list(cpu_bfloat16()),
            "auto_dtype": dtype_name(resolve_dtype("auto", cpu)),
            "graphs": False,
            "dtypes": ["float32", "bfloat16", "float16", "float64"],
        }
    ]
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            device = torch.device("cuda", index)
            facts = torch.cuda.get_device_properties(index)
            devices.append(
                {
                    "name": f"cuda:{index}",
                    "model": facts.name,
                    "memory_bytes": facts.total_memory,
                    "free_bytes": free_bytes(device),
                    "bfloat16": has_bfloat16(device),
                    "instructions": [f"sm_{facts.major}{facts.minor}"],
                    "auto_dtype": dtype_name(resolve_dtype("auto", device)),
                    "graphs": True,
                    "dtypes": ["float32", "bfloat16", "float16", "float64"],
                }
            )
    if torch.backends.mps.is_available():
        devices.append(
            {
                "name": "mps",
                "model": platform.processor(),
                "bfloat16": False,
                "instructions": [],
                "auto_dtype": dtype_name(resolve_dtype("auto", torch.device("mps"))),
                "graphs": False,
                "dtypes": ["float32", "float16"],
            }
        )
    return devices


def _cuda() -> dict[str, Any]:
    """What this torch was built for, and whether forwards can be recorded (`--cuda-graphs`)."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {"built_for": torch.version.cuda, "devices": count, "graphs": count > 0}


def _memory() -> dict[str, int]:
    memory = psutil.virtual_memory()
    return {"total_bytes": memory.total, "available_bytes": memory.available}


def _pairs() -> dict[str, str]:
    """Where the weights of each pair are; of a list that cannot be read, why not."""
    try:
        return {name: state_of(spec) for name, spec in all_pairs().items()}
    except UserError as error:
        return {"pairs": str(error)}


def _weights() -> dict[str, Any]:
    installed = smollm2.installed_gguf()
    return {
        "smollm2": {
            "converted": str(smollm2.model_dir()) if smollm2.is_ready() else None,
            "installed": str(installed) if installed else None,
        }
    }
