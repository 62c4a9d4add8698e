"""Stand-ins for the paper's pairs: their architectures, vocabularies, tokenizer classes and
files, shrunk in depth and width, with seeded random weights, laid out as the hub's cache.

They are found and loaded as the published models are, so what works with them fails with
those at most for their size.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from sentencepiece import SentencePieceTrainer, sentencepiece_model_pb2
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend
from transformers import (
    GenerationConfig,
    Glm4Config,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2Tokenizer,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from engine.text.prompts import shipped_prompts

COMMIT = "5" * 40

QWEN3_SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>",
    "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
]  # fmt: skip
GLM4_SPECIAL = [
    "<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>",
    "<|assistant|>", "<|observation|>", "<|begin_of_image|>", "<|end_of_image|>",
    "<|begin_of_video|>", "<|end_of_video|>",
]  # fmt: skip
GLM4_DRAFT_ONLY = [
    "<|begin_of_audio|>", "<|end_of_audio|>", "<|begin_of_transcription|>",
    "<|end_of_transcription|>", "<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>",
    "<think>", "</think>", "<tool_call>", "</tool_call>",
]  # fmt: skip
"""The draft comes from a later family, which knows these too."""

QWEN3_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
GLM4_CHAT = (
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)

Make = Callable[[Path], None]


def lay_out(cache: Path, *names: str) -> None:
    """Put the models of these pairs into a cache of the hub's."""
    for name in names:
        for repository, make in PAIRS[name].items():
            home = cache / f"models--{repository.replace('/', '--')}"
            snapshot = home / "snapshots" / COMMIT
            snapshot.mkdir(parents=True)
            make(snapshot)
            (home / "refs").mkdir()
            (home / "refs" / "main").write_text(COMMIT)


def small(kind: type, **facts: Any) -> Any:
    """A configuration of this kind, two layers deep and a few numbers wide."""
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    return kind(**(sizes | facts))


# ---- vicuna: Llama, SentencePiece, weights in the old format -----------------------------


def vicuna(place: Path, *, layers: int = 2) -> None:
    config = small(
        LlamaConfig,
        vocab_size=32_000,
        num_hidden_layers=layers,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    write_model(place, config, seed=layers, shards=2, safe=False, eos_token_id=2)
    (place / "tokenizer.model").write_bytes(llama_pieces())
    write_json(
        place / "tokenizer_config.json",
        tokenizer_class="LlamaTokenizer",
        add_bos_token=True,
        add_eos_token=False,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<unk>",
        model_max_length=2048,
    )


@lru_cache(maxsize=1)
def llama_pieces() -> bytes:
    """A SentencePiece model of 32 000 pieces, the first few hundred of them learnt."""
    written = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()),
        model_writer=written,
        model_type="bpe",
        vocab_size=700,
        byte_fallback=True,
        minloglevel=2,
    )
    model = sentencepiece_model_pb2.ModelProto.FromString(written.getvalue())
    known = {piece.piece for piece in model.pieces}
    for word in fillers():
        if len(model.pieces) == 32_000:
            break
        if f"▁{word}" not in known:
            model.pieces.add(piece=f"▁{word}", score=-float(len(model.pieces)))
    return bytes(model.SerializeToString())


# ---- qwen3: norms on queries and keys, a head padded beyond the tokenizer ----------------


def qwen3(place: Path, *, tied: bool = False) -> None:
    config = small(
        Qwen3Config,
        vocab_size=151_936,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=40_960,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=tied,
        bos_token_id=151_643,
        eos_token_id=151_645,
    )
    eos = [151_645, 151_643]
    write_model(place, config, seed=3 + tied, shards=1, eos_token_id=eos, pad_token_id=151_643)
    vocabulary, merges = byte_level(151_643)
    hf = Qwen2Tokenizer(vocab=vocabulary, merges=merges)
    hf.add_tokens([AddedToken(name, special=True, normalized=False) for name in QWEN3_SPECIAL])
    hf.eos_token = "<|im_end|>"
    hf.chat_template = QWEN3_CHAT
    hf.save_pretrained(place)


# ---- glm4: rotary embeddings of half the head; a draft of another family -----------------

GLM4_EOS = [151_329, 151_336, 151_338]


def glm4(place: Path) -> None:
    config = small(
        Glm4Config,
        vocab_size=151_552,
        num_key_value_heads=1,
        head_dim=16,
        partial_rotary_factor=0.5,
        attention_bias=True,
        max_position_embeddings=32_768,
        eos_token_id=GLM4_EOS,
        pad_token_id=151_329,
    )
    write_model(place, config, seed=5, shards=2, eos_token_id=GLM4_EOS, pad_token_id=151_329)
    glm4_tokenizer(place, GLM4_SPECIAL)


def glm4_draft(place: Path) -> None:
    config = small(Qwen2Config, vocab_size=151_552, eos_token_id=151_329, tie_word_embeddings=False)
    write_model(place, config, seed=6, shards=1, eos_token_id=GLM4_EOS)
    glm4_tokenizer(place, [*GLM4_SPECIAL, *GLM4_DRAFT_ONLY])


def glm4_tokenizer(place: Path, special: list[str]) -> None:
    vocabulary, merges = byte_level(151_329)
    backend = Backend(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, special=True) for name in special])
    prefix = ["[gMASK]", "<sop>"]
    backend.post_processor = processors.TemplateProcessing(
        single=" ".join([*prefix, "$A"]),
        special_tokens=[(name, backend.token_to_id(name)) for name in prefix],
    )
    hf = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )
    hf.chat_template = GLM4_CHAT
    hf.save_pretrained(place)


# ---- what they share --------------------------------------------------------------------


def write_model(
    place: Path, config: Any, *, seed: int, shards: int, safe: bool = True, **generation: Any
) -> None:
    """Random weights in bfloat16, spread over so many files."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    if not config.tie_word_embeddings:
        _speak_alike(model)
    model.generation_config = GenerationConfig(**generation)
    size = sum(weight.numel() * 2 for weight in model.parameters())
    if safe:
        model.save_pretrained(place, max_shard_size=size // shards + 1024)
        return
    config.architectures, config.dtype = [type(model).__name__], torch.bfloat16
    config.save_pretrained(place)
    model.generation_config.save_pretrained(place)
    names = list(model.state_dict())
    where = {name: f"pytorch_model-{i % shards + 1:05}.bin" for i, name in enumerate(names)}
    for file in set(where.values()):
        part = {name: model.state_dict()[name] for name in names if where[name] == file}
        torch.save(part, place / file)
    index = {"metadata": {"total_size": size}, "weight_map": where}
    write_json(place / "pytorch_model.bin.index.json", **index)


def _speak_alike(model: Any) -> None:
    """The same tables in every model of a vocabulary: target and draft agree now and then."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for table in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
            table.copy_(torch.randn(table.shape, generator=generator))


def write_json(file: Path, **content: Any) -> None:
    file.write_text(json.dumps(content))


def corpus() -> list[str]:
    return [entry.text for entry in shipped_prompts()]


def byte_level(size: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A byte-level vocabulary of this size, the first few hundred entries learnt."""
    vocabulary, merges = _learnt()
    words = dict(vocabulary)
    for word in fillers():
        if len(words) == size:
            break
        words.setdefault(f"Ġ{word}", len(words))
    return words, merges


@lru_cache(maxsize=1)
def _learnt() -> tuple[dict[str, int], list[tuple[str, str]]]:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    backend.train_from_iterator(corpus(), trainer)
    model = json.loads(backend.to_str())["model"]
    return model["vocab"], [(first, second) for first, second in model["merges"]]


def fillers() -> Iterator[str]:
    """Words that look like some, as many as anybody wants."""
    syllables = [c + v for c in "bdfgklmnprstvz" for v in ("a", "e", "i", "o", "u", "ar", "en")]
    words = [""]
    while True:
        words = [word + syllable for word in words for syllable in syllables]
        yield from words


PAIRS: dict[str, dict[str, Make]] = {
    "vicuna": {
        "lmsys/vicuna-7b-v1.3": vicuna,
        "double7/vicuna-68m": lambda place: vicuna(place, layers=1),
    },
    "qwen3": {
        "Qwen/Qwen3-8B": qwen3,
        "Qwen/Qwen3-0.6B": lambda place: qwen3(place, tied=True),
    },
    "glm4": {
        "zai-org/GLM-4-9B-0414": glm4,
        "jukofyork/GLM-4.5-DRAFT-0.6B-v3.0": glm4_draft,
    },
}
