"""A tiny model of every architecture on the allow-list, with random weights in float64."""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.models.architectures import ARCHITECTURES
from engine.models.causal_lm import LanguageModel
from engine.pairs.load import Pair
from engine.records.schema import PairInfo
from engine.text.tokenizer import Tokenizer

VOCABULARY = 40
WINDOW = 6
CONTEXT = 96

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_ONE_TO_ONE = ("gpt2", "gpt_neox", "opt")
"""Those that have as many K/V heads as query heads."""

_TYPES = ["full_attention", "sliding_attention"]
_SLIDING = {"sliding_window": WINDOW}
_MIXED = {**_SLIDING, "use_sliding_window": True, "layer_types": _TYPES}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for kind in ARCHITECTURES},
    "cohere2": ("cohere2", _MIXED),
    "gemma2": ("gemma2", {**_MIXED, "attn_logit_softcapping": 0.2, "query_pre_attn_scalar": 4}),
    "gemma3": (
        "gemma3",
        {
            "text_config": {**_SIZES, **_MIXED, "num_key_value_heads": 2},
            "vision_config": {
                "hidden_size": 8,
                "intermediate_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "image_size": 4,
                "patch_size": 2,
            },
            "mm_tokens_per_image": 4,
        },
    ),
    "gemma3_text": ("gemma3_text", {**_MIXED, "query_pre_attn_scalar": 4}),
    "gpt2 scaled by layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    "gpt_neox in sequence": ("gpt_neox", {"use_parallel_residual": False, "rotary_pct": 1.0}),
    "mistral": ("mistral", _SLIDING),
    "mistral without": ("mistral", {"sliding_window": None}),
    "olmo3": ("olmo3", _MIXED),
    "opt post-norm": ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 16}),
    "phi3": ("phi3", _SLIDING),
    "qwen2": ("qwen2", _MIXED),
    "qwen3": ("qwen3", _MIXED),
    "qwen3 without": ("qwen3", {}),
    "smollm3": ("smollm3", {**_MIXED, "no_rope_layers": [1, 0]}),
    "starcoder2": ("starcoder2", _SLIDING),
}
"""By name: the architecture, and what is special about its configuration."""


@lru_cache
def plain(name: str, noise: float = 0.0) -> Any:
    """The model as transformers makes it; `noise` on its weights makes a draft of it."""
    kind, special = VARIANTS[name]
    heads = {} if kind in _ONE_TO_ONE else {"num_key_value_heads": 2}
    sizes = {} if "text_config" in special else {**_SIZES, **heads}
    config = AutoConfig.for_model(kind, **copy.deepcopy({**sizes, **special}))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        with torch.no_grad():
            for weight in model.parameters():
                weight += noise * torch.randn_like(weight)
    return model.double().eval()


@lru_cache
def pair_of(name: str, noise: float = 0.05) -> Pair:
    """The model as the engine runs it, and a draft that often agrees with it."""
    target = LanguageModel(copy.deepcopy(plain(name)), name=name)
    draft = LanguageModel(copy.deepcopy(plain(name, noise)), name=f"{name}, with noise")
    info = PairInfo(
        name=name,
        target=name,
        draft=draft.name,
        vocabulary=VOCABULARY,
        context=target.context,
        eos_ids=(),
        pad_id=0,
    )
    tokenizer = Tokenizer(None, name="ids", eos_ids=(), pad_id=0, vocabulary=VOCABULARY)
    return Pair(info=info, target=target, draft=draft, tokenizer=tokenizer)


@lru_cache
@torch.inference_mode()
def alone(name: str, prompt: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    """Greedy decoding by the plain model: one row, no cache, no mask, no positions of ours."""
    model = plain(name)
    ids = list(prompt)
    for _ in range(tokens):
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits
        ids.append(int(logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])
