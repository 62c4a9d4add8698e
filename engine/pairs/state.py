"""Where a pair's weights are, found out without the network and without loading anything."""

from __future__ import annotations

from engine.pairs import smollm2
from engine.pairs.registry import PairSpec


def state_of(spec: PairSpec) -> str:
    """In a few words: `ready`, or what will have to be done."""
    if spec.kind == "smollm2":
        if not smollm2.is_ready():
            return "installed" if smollm2.installed_gguf() else "fetched at first use"
    elif spec.kind == "toy":
        return "in memory"
    from engine.pairs import hub

    here = all(hub.is_here(name, revision) for name, revision in spec.models)
    return "ready" if here else "on the hub"
