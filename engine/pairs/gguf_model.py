"""A Llama model in a GGUF file, written as an ordinary model directory.

Weights are dequantised to float32, which holds every quantised value exactly, and
the rows of the query and key projections go back to the order that transformers
expects. The tokenizer is built from the file's tokens and merges.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Progress = Callable[[str, float | None], None]
"""Called with a stage in words and the fraction done (None: unknown). May raise to cancel."""

_CONTROL = 3
"""GGUF's token type of special tokens."""

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_MODEL_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


def convert(gguf_file: Path, directory: Path, progress: Progress) -> None:
    """Write `gguf_file` into `directory` (which exists and is empty).

    Raises:
        ValueError: the file holds no Llama model with a byte-level BPE tokenizer.
    """
    import gguf

    progress("reading the weights", None)
    reader = gguf.GGUFReader(str(gguf_file))
    meta = {name: field.contents() for name, field in reader.fields.items()}
    if meta.get("general.architecture") != "llama" or meta.get("tokenizer.ggml.model") != "gpt2":
        raise ValueError(f"{gguf_file.name}: not a Llama model with a byte-level tokenizer")
    names = {tensor.name for tensor in reader.tensors}
    config = _config(meta, tied="output.weight" not in names)
    _write_json(directory / "config.json", config)
    _write_json(
        directory / "generation_config.json",
        {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
    )
    _write_tokenizer(meta, directory)
    _write_weights(reader, config, directory, progress)


def _config(meta: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    hidden = meta["llama.embedding_length"]
    heads = meta["llama.attention.head_count"]
    theta = float(meta["llama.rope.freq_base"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "hidden_size": hidden,
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "max_position_embeddings": meta["llama.context_length"],
        "rms_norm_eps": float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        # Both spellings of RoPE's base: transformers 4 reads the first, 5 the second.
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "float32",
    }


def _write_tokenizer(meta: dict[str, Any], directory: Path) -> None:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    spellings: list[str] = meta["tokenizer.ggml.tokens"]
    kinds: list[int] = meta["tokenizer.ggml.token_type"]
    merges: list[str] = meta["tokenizer.ggml.merges"]
    first, second = zip(*(merge.split(" ", 1) for merge in merges), strict=True)
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={spelled: token for token, spelled in enumerate(spellings)},
            merges=list(zip(first, second, strict=True)),
        )
    )
    splits: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if meta.get("tokenizer.ggml.pre") == "smollm":
        splits.insert(0, pre_tokenizers.Digits(individual_digits=True))
    backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [
            tokenizers.AddedToken(spelled, special=True, normalized=False)
            for spelled, kind in zip(spellings, kinds, strict=True)
            if kind == _CONTROL
        ]
    )
    backend.save(str(directory / "tokenizer.json"))
    special = {
        f"{role}_token": spellings[meta[f"tokenizer.ggml.{name}_token_id"]]
        for role, name in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": meta["tokenizer.chat_template"],
            "clean_up_tokenization_spaces": False,
            "model_max_length": meta["llama.context_length"],
            **special,
        },
    )


def _write_weights(
    reader: Any, config: dict[str, Any], directory: Path, progress: Progress
) -> None:
    import gguf
    import numpy
    from safetensors.numpy import save_file

    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }
    weights: dict[str, Any] = {}
    for index, tensor in enumerate(reader.tensors):
        progress("converting the weights", index / len(reader.tensors))
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        parts = tensor.name.removesuffix(".weight").split(".")
        if parts[0] == "blk":
            name = f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"
            if parts[2] in heads:
                values = _rope_order(values, heads[parts[2]])
        else:
            name = f"{_MODEL_NAMES[parts[0]]}.weight"
        weights[name] = numpy.ascontiguousarray(values, dtype=numpy.float32)
    progress("writing the weights", None)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def _rope_order(values: Any, heads: int) -> Any:
    """GGUF interleaves the two halves that RoPE rotates; transformers keeps them apart.

    (heads · dim, hidden): within each head, row 2j + i goes to row i · dim/2 + j.
    """
    rows, hidden = values.shape
    return values.reshape(heads, rows // heads // 2, 2, hidden).swapaxes(1, 2).reshape(rows, hidden)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
