"""The pair `toy`: tiny, seeded, random, in memory within milliseconds, no network.

The draft is the target with some noise on its weights, so that about two of five
draft tokens are accepted. The models know nothing: what they write is a salad of
readable words, with a few pieces that a screen must survive (markup, an emoji split
over its bytes, control characters).
"""

from __future__ import annotations

from typing import Any

import torch

_WORDS = (
    "the a of and to in is it that with on as by from at this or but not when then so "
    "river stone light wind tree bird house road hill rain snow fire field night day sun "
    "moon star sea boat bread water salt milk apple garden window door table chair lamp "
    "book letter song word name story map coin bell clock wheel rope ladder bridge mill "
    "old new small large warm cold bright dark quiet loud green blue red white long short "
    "quick slow kind brave empty full open early late near far soft hard "
    "goes comes runs walks sings sees finds keeps gives takes makes turns falls grows "
    "waits sleeps opens closes carries follows crosses reaches holds leaves returns "
    "never always often perhaps again together slowly gently there here above below"
).split()
_ENDINGS = (".", ",", ";", ":", "!", "?", "\n", " -", "'s", "ing", "ed", "ly", "s", "er")
_AWKWARD = (
    "[/INST]", "[bold]", "[red]x[/]", "\x1b[31m", "\t", "\x07", "\r", "\\", "日本", "e\u0301",
    "🙂".encode()[:2], "🙂".encode()[2:],
)  # fmt: skip
"""Pieces that a screen must survive; the last two are a character only together."""
END = "<end>"
BEGIN = "<begin>"
CONTEXT = 4096

_LAYERS, _HIDDEN, _HEADS, _KV_HEADS = 2, 48, 4, 2
_NOISE = 0.025
_SPREAD = 0.35
"""Standard deviation of the weights: large enough that what comes next depends on all
that came before, so that the models do not fall into a loop."""


def toy_models(
    *, seed: int = 0, dtype: torch.dtype = torch.float32, noise: float = _NOISE
) -> tuple[Any, Any]:
    """Target and draft, as transformers models on the CPU.

    Args:
        noise: size of the draft's perturbation relative to the weights; 0 gives a draft
            that equals the target.

    The same seed gives the same values in every dtype (drawn in float64, then rounded);
    torch's global random state is left alone.
    """
    generator = torch.Generator().manual_seed(seed)
    size = len(_pieces())
    target, draft = _empty(size, dtype), _empty(size, dtype)
    others = draft.state_dict()
    with torch.no_grad():
        for name, weight in target.state_dict().items():
            if "norm" in name:
                continue
            drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64) * _SPREAD
            change = torch.randn(weight.shape, generator=generator, dtype=torch.float64) * _SPREAD
            if name == "lm_head.weight":
                scale = _frequencies()[:, None]
                drawn, change = drawn * scale, change * scale
            weight.copy_(drawn)
            others[name].copy_(drawn + noise * change)
    return target.eval(), draft.eval()


def toy_tokenizer(*, pad_is_eos: bool = True) -> Any:
    """A transformers tokenizer: 256 bytes, words, and the awkward pieces."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # Fewest pieces win, so a known word is one token and the rest falls back to bytes.
    backend = Tokenizer(models.Unigram([(piece, -1.0) for piece in _pieces()], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = [BEGIN, END]
    backend.add_special_tokens([AddedToken(name, special=True) for name in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=END if pad_is_eos else BEGIN,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def _empty(vocabulary: int, dtype: torch.dtype) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=_HIDDEN,
        intermediate_size=2 * _HIDDEN,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KV_HEADS,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    with torch.random.fork_rng(devices=[]):
        return LlamaForCausalLM(config).to(dtype)


def _pieces() -> list[str]:
    """The vocabulary by id, spelled in the byte-level alphabet."""
    from engine.text.tokenizer import byte_alphabet

    alphabet = byte_alphabet()
    texts: list[str | bytes] = [*(f" {word}" for word in _WORDS), *_WORDS, *_ENDINGS, *_AWKWARD]
    as_bytes = [text if isinstance(text, bytes) else text.encode() for text in texts]
    spelled = ["".join(alphabet[byte] for byte in text) for text in as_bytes]
    return list(dict.fromkeys([BEGIN, END, *alphabet, *spelled]))


def _frequencies() -> torch.Tensor:
    """[vocabulary] a factor on each token's row of the head: larger is generated more often."""
    pieces = _pieces()
    factors = torch.full((len(pieces),), 0.55, dtype=torch.float64)
    for token, piece in enumerate(pieces):
        if piece.startswith("Ġ") and len(piece) > 2:
            factors[token] = 1.0
    factors[-len(_ENDINGS) - len(_AWKWARD) :] = 0.9
    factors[pieces.index(BEGIN)] = 0.0
    factors[pieces.index(END)] = 1.0
    return factors
