"""A pair as ordinary model directories that other software loads.

transformers 5 writes RoPE's settings only as `rope_parameters`, which releases of
the 4 line ignore without a word, and a tokenizer class that they do not know: both
are written in the old spelling as well.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.config.errors import UserError
from engine.models.causal_lm import LanguageModel
from engine.pairs.load import Pair
from engine.text.tokenizer import Tokenizer

Progress = Callable[[str, float | None], None]


def export_pair(pair: Pair, directory: Path, progress: Progress) -> list[Path]:
    """Write `directory/target`, and `directory/draft` where the pair has a draft model.

    A draft with a hot vocabulary gets a full head. Nothing half-written is left.

    Returns:
        The directories written.

    Raises:
        UserError: one of them exists already, or cannot be written.
    """
    models = [("target", pair.target)]
    if pair.draft is not None:
        models.append(("draft", pair.draft))
    for name, _ in models:
        if (directory / name).exists():
            raise UserError(f"{directory / name} exists already: name another directory")
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, model in models:
            progress(f"writing the {name}", None)
            written.append(_write(pair, model, directory / name))
    except OSError as error:
        raise UserError(f"cannot write to {directory}: {error.strerror or error}") from error
    return written


def _write(pair: Pair, model: LanguageModel, place: Path) -> Path:
    work = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        made = work / place.name
        made.mkdir()
        if model.hot_ids is not None:
            from engine.models.draft_format import export_full

            export_full(pair.target.hf, model.hf, model.hot_ids, made)
        else:
            model.hf.save_pretrained(made)
            _in_both_spellings(made / "config.json")
        save_tokenizer(pair.tokenizer, made)
        os.replace(made, place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return place


def _in_both_spellings(file: Path) -> None:
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    rope = config.get("rope_parameters")
    if isinstance(rope, dict) and "rope_theta" in rope:
        rest = {name: value for name, value in rope.items() if name != "rope_theta"}
        config["rope_theta"] = rope["rope_theta"]
        if "partial_rotary_factor" in rest:
            config["partial_rotary_factor"] = rest.pop("partial_rotary_factor")
        if rest.get("rope_type", "default") != "default":
            config["rope_scaling"] = rest
    if "dtype" in config:
        config["torch_dtype"] = config["dtype"]
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def save_tokenizer(tokenizer: Tokenizer, directory: Path) -> None:
    """Write the tokenizer's files, if there is one, so that both lines load them."""
    if tokenizer.hf is None:
        return
    tokenizer.hf.save_pretrained(directory)
    file = directory / "tokenizer_config.json"
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if config.get("tokenizer_class") in (None, "TokenizersBackend"):
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    if tokenizer.hf.chat_template:
        config["chat_template"] = tokenizer.hf.chat_template
    file.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
