"""A draft on the disk: only what differs from its target, or a complete ordinary directory.

The compact form is ``draft.safetensors`` (the kept layers, 8 bits per weight with a scale per
output channel or bf16, and the hot ids) beside ``draft.json``. A draft need not be exact: the
target checks each of its draft tokens.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from engine.config.errors import UserError
from engine.config.replace_file import replace_with
from engine.models.cut_draft import build_draft, check_target

SCHEMA = "batchspec/draft/1"
WEIGHTS, FACTS = "draft.safetensors", "draft.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)


def to_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of a matrix as 8-bit integers, and the scale of each row."""
    weight = weight.float()
    scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
    return (weight / scale).round().clamp(-127, 127).to(torch.int8), scale[:, 0].contiguous()


def from_int8(values: Tensor, scale: Tensor) -> Tensor:
    return values.float() * scale[:, None]


def save_compact(
    directory: Path | str,
    draft: Any,
    layers: Sequence[int],
    hot_ids: Tensor,
    *,
    int8: bool = True,
    figures: dict[str, Any] | None = None,
) -> Path:
    """Write the draft's layers and hot ids into ``directory``."""
    facts = {"layers": list(layers), "target": target_shape(draft.config), **(figures or {})}
    return write(Path(directory), draft.model.layers.state_dict(), hot_ids, facts, int8=int8)


def write(
    directory: Path, state: dict[str, Tensor], hot_ids: Tensor, facts: dict[str, Any], *, int8: bool
) -> Path:
    """Weights, packed, and what is to be known of them."""
    form = "int8" if int8 else "bf16"
    facts = {"schema": SCHEMA, "hot_vocab": len(hot_ids), "weights": form, **facts}
    directory.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {"hot_ids": hot_ids.to("cpu", torch.int32).contiguous()}
    for name, value in state.items():
        value = value.detach().cpu()
        if int8 and value.ndim == 2:
            tensors[name], tensors[name + ".scale"] = to_int8(value)
        else:
            kept = torch.float32 if value.ndim < 2 else torch.bfloat16
            tensors[name] = value.to(kept).contiguous()
    replace_with(directory / WEIGHTS, lambda path: save_file(tensors, path))
    text = json.dumps(facts, indent=1) + "\n"
    replace_with(directory / FACTS, lambda path: path.write_text(text))
    return directory


def target_shape(config: Any) -> dict[str, Any]:
    """What a target must share with the one that the draft was made from."""
    names = (
        "model_type",
        "hidden_size",
        "vocab_size",
        "num_attention_heads",
        "num_key_value_heads",
    )
    return {name: getattr(config, name, None) for name in names}


def is_compact(directory: Path | str) -> bool:
    return (Path(directory) / FACTS).is_file() and (Path(directory) / WEIGHTS).is_file()


def read_facts(directory: Path | str) -> dict[str, Any]:
    """``draft.json``, checked."""
    path = Path(directory) / FACTS
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if facts.get("schema") != SCHEMA:
        raise UserError(f"{path} is no draft of the form {SCHEMA}")
    return facts


def load_compact(
    directory: Path | str, target_model: Any, dtype: torch.dtype | None = None
) -> tuple[Any, Tensor]:
    """The draft on its target's shoulders, and its hot ids: logit column j is token ``hot_ids[j]``.

    Embedding and final norm are the target's own tensors where the dtype agrees. The draft stands
    on the target's device.
    """
    directory = Path(directory)
    facts = read_facts(directory)
    state, hot_ids = read(directory, facts, target_model)
    draft = build_draft(target_model, facts["layers"], hot_ids, dtype)
    fill(directory, draft.model.layers, state)
    draft.requires_grad_(False)
    return draft, hot_ids.to(draft.lm_head.weight.device)


def read(
    directory: Path, facts: dict[str, Any], target_model: Any
) -> tuple[dict[str, Tensor], Tensor]:
    """Weights and hot ids, if they were made for such a target."""
    check_target(target_model)
    shape, wanted = target_shape(target_model.config), facts.get("target", {})
    unlike = [name for name, value in wanted.items() if shape.get(name) != value]
    if unlike or max(facts["layers"]) >= len(target_model.model.layers):
        raise UserError(
            f"the draft in {directory} was made for another target: "
            f"{', '.join(unlike) or 'layers'} differ"
        )
    try:
        tensors = load_file(directory / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{directory / WEIGHTS} cannot be read: {error}") from None
    hot_ids = tensors.pop("hot_ids").long()
    scales = {
        name[: -len(".scale")]: tensors.pop(name)
        for name in list(tensors)
        if name.endswith(".scale")
    }
    state = {
        name: from_int8(value, scales[name]) if name in scales else value
        for name, value in tensors.items()
    }
    return state, hot_ids


def fill(directory: Path, module: nn.Module, state: dict[str, Tensor]) -> None:
    """Load weights into a module, whose dtype they take."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(f"{directory / WEIGHTS} does not fit its target: {error}") from None


def export_full(
    target_model: Any,
    draft_model: Any,
    hot_ids: Tensor,
    directory: Path | str,
    tokenizer_source: Path | str | None = None,
) -> Path:
    """Write the draft as a complete model directory with the target's full head.

    Its logits over the hot ids are the draft's own; other tokens get theirs too, so that any
    software can use it. transformers 4.51 and 5.x read the same model from it.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    head = target_model.get_output_embeddings()
    tied = head.weight.data_ptr() == target_model.get_input_embeddings().weight.data_ptr()
    tensors = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in draft_model.state_dict().items()
        if not name.startswith("lm_head.")
    }
    if not tied:
        for name, value in head.state_dict().items():
            tensors[f"lm_head.{name}"] = (
                value.detach().to("cpu", draft_model.lm_head.weight.dtype).clone()
            )
    replace_with(
        directory / "model.safetensors",
        lambda path: save_file(tensors, path, metadata={"format": "pt"}),
    )
    write_config(draft_model, directory, tied=tied)
    if tokenizer_source is not None:
        for name in TOKENIZER_FILES:
            source = Path(tokenizer_source) / name
            if source.is_file():
                shutil.copyfile(source, directory / name)
    return directory


def write_config(model: Any, directory: Path, *, tied: bool) -> None:
    """``config.json`` that 4.x and 5.x read alike; 5.x by itself would leave out ``rope_theta``."""
    config = model.config.to_dict()
    dtype = str(model.lm_head.weight.dtype).removeprefix("torch.")
    config.update(
        architectures=[type(model).__name__],
        tie_word_embeddings=tied,
        dtype=dtype,
        torch_dtype=dtype,
    )
    rope = config.get("rope_parameters")
    if isinstance(rope, dict) and "rope_theta" in rope:
        config["rope_theta"] = rope["rope_theta"]
        rest = {k: v for k, v in rope.items() if k != "rope_theta"}
        config["rope_scaling"] = rest if rest.get("rope_type", "default") != "default" else None
    config.pop("_name_or_path", None)
    config.pop("_model_name_or_path", None)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    replace_with(directory / "config.json", lambda path: path.write_text(text))
