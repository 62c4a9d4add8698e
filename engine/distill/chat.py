"""Turning questions into token ids under the target's own chat template."""

from __future__ import annotations

from typing import Any

from engine.text.chat import THINKING

_MARK = "\u2063MARK\u2063"


def render(tokenizer: Any, text: str, *, answer: bool = True) -> str:
    """The text of a user turn, up to where the answer begins (``answer``) or the turn ends."""
    if not getattr(tokenizer, "chat_template", None):
        return f"Question: {text}\nAnswer:" if answer else f"Question: {text}\n"
    rendered: str = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}],
        tokenize=False,
        add_generation_prompt=answer,
        **{THINKING: False},  # templates without such a switch take no notice
    )
    return rendered


def encode(tokenizer: Any, text: str) -> list[int]:
    """Ids of rendered text; a template that spells out its special tokens gets no further ones."""
    special = not getattr(tokenizer, "chat_template", None)
    ids: list[int] = tokenizer(text, add_special_tokens=special)["input_ids"]
    return ids


def question_ids(tokenizer: Any, text: str) -> list[int]:
    return encode(tokenizer, render(tokenizer, text))


def user_opening(tokenizer: Any, start: str) -> list[int]:
    """Ids of a user turn that has only begun: the target itself is to finish it."""
    return encode(tokenizer, render(tokenizer, _MARK).split(_MARK)[0] + start)


def answer_marker(tokenizer: Any) -> list[int]:
    """The ids between a user turn and its answer, by which an answer is found in a sequence."""
    whole = render(tokenizer, _MARK)
    turn = render(tokenizer, _MARK, answer=False)
    marker = whole[len(turn) :] if whole.startswith(turn) else ""
    return encode(tokenizer, marker) if marker else []


def eos_ids(model: Any, tokenizer: Any) -> set[int]:
    """Every id that ends an answer, from the generation config, the config and the tokenizer."""
    found: set[int] = set()
    configs = (getattr(model, "generation_config", None), model.config, tokenizer)
    for holder in configs:
        value = getattr(holder, "eos_token_id", None)
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, int):
                found.add(item)
    return found
