"""The words, templates, passages and prompts that questions are made of."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def load(name: str) -> Any:
    """The content of one of the JSON files beside this one."""
    return json.loads((files(__name__) / f"{name}.json").read_text(encoding="utf-8"))
