"""Pairs of random weights in the shapes of real ones, made on the device, without a download.

Time depends on the shapes and not on the values. What does depend on the values is which
draft tokens are accepted, so there are two drafts: the target's own first layers, which agree
with it often since its later layers add little (to compare outputs), and a small model of its
own, which never does (to measure time, with acceptance forced).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.models.causal_lm import LanguageModel
from engine.pairs.load import Pair
from engine.records.schema import PairInfo
from engine.text.tokenizer import Tokenizer


class Size(NamedTuple):
    """The sizes of one Llama."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int = 32_000
    context: int = 2048


class Shape(NamedTuple):
    """A pair's shapes, and the gigabytes that its check needs (in float32)."""

    target: Size
    draft: Size
    what: str
    gigabytes: int


_68M = Size(768, 3072, 2, 12, 12)  # double7/vicuna-68m

SHAPES = {
    "7b": Shape(Size(4096, 11008, 32, 32, 32), _68M, "Vicuna 7B with 68M", 45),
    "1b": Shape(Size(2048, 5632, 22, 32, 4), _68M, "TinyLlama 1.1B with 68M", 10),
    "small": Shape(Size(576, 1536, 12, 9, 3, 8192), Size(192, 512, 2, 3, 3, 8192), "small", 1),
    "tiny": Shape(Size(64, 128, 6, 4, 2, 512), Size(32, 64, 1, 2, 2, 512), "tiny", 0),
}

EARLY = 2
"""Layers of the draft that is the target's beginning."""

LATER = 0.1
"""How much of their natural share the target's layers after those add to its state."""


def largest_shape(device: torch.device) -> str:
    """The largest shape for which the device has the memory."""
    if device.type != "cuda":
        return "tiny"
    free = torch.cuda.mem_get_info(device)[0] / 1e9
    return next(name for name, shape in SHAPES.items() if shape.gigabytes <= free)


def target_of(shape: Shape, device: torch.device, dtype: torch.dtype) -> Any:
    """The target, a transformers model."""
    model = _random(shape.target, device, dtype, seed=0)
    with torch.no_grad():
        for layer in model.model.layers[EARLY:]:
            layer.self_attn.o_proj.weight *= LATER
            layer.mlp.down_proj.weight *= LATER
    return model


def sharing_pair(target: Any) -> Pair:
    """A target, and its first layers as the draft: they share their weights."""
    config = type(target.config).from_dict(target.config.to_dict())
    config.num_hidden_layers = EARLY
    with torch.device("meta"):
        draft = type(target)(config)
    draft.load_state_dict(target.state_dict(), strict=False, assign=True)
    draft.model.rotary_emb = target.model.rotary_emb
    return _pair(target, draft.eval(), f"its first {EARLY} layers")


def small_draft_pair(target: Any, shape: Shape) -> Pair:
    """A target, and a draft of its own shape, whose draft tokens are worth nothing."""
    draft = _random(shape.draft, target.device, target.dtype, seed=1)
    return _pair(target, draft, "a small model")


def _random(size: Size, device: torch.device, dtype: torch.dtype, seed: int) -> Any:
    """As lively at every width as the usual 0.02 is at 4096: what comes next has to depend on
    all that came before, or no mistake would show."""
    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        max_position_embeddings=size.context,
        initializer_range=1.28 / size.hidden**0.5,
        tie_word_embeddings=False,
        eos_token_id=None,
    )
    usual = torch.get_default_dtype()
    torch.manual_seed(seed)
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(usual)


def _pair(target: Any, draft: Any, what: str) -> Pair:
    vocabulary = target.config.vocab_size
    models = [LanguageModel(target, name="random target"), LanguageModel(draft, name=what)]
    info = PairInfo(
        name="random weights",
        target=models[0].name,
        draft=what,
        target_layers=models[0].layers,
        draft_layers=models[1].layers,
        vocabulary=vocabulary,
        context=models[0].context,
        kv_bytes_per_token=models[0].kv_bytes_per_token,
    )
    tokenizer = Tokenizer(None, name="ids", eos_ids=(), pad_id=0, vocabulary=vocabulary)
    return Pair(info=info, target=models[0], draft=models[1], tokenizer=tokenizer)
