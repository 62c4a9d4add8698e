"""The target writes its own training text: answers to questions, some of which it asks itself."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from engine.config.replace_file import replace_with
from engine.distill.chat import eos_ids, question_ids, user_opening
from engine.distill.generate import Request, generate
from engine.distill.questions import questions
from engine.distill.texts import load
from engine.distill.tokens import TokenData


@dataclass(frozen=True)
class WritingPlan:
    """How much is written, and how."""

    rows: int = 4096
    self_asked: float = 0.2  # share of the user turns that the target writes too
    greedy: float = 0.6  # share of the answers that are greedy; the others are sampled
    temperature: float = 0.7
    max_new: int = 128
    slots: int = 64
    seed: int = 0
    save_seconds: float = 45.0


def self_asked(model: Any, tokenizer: Any, count: int, plan: WritingPlan) -> list[str]:
    """User turns that the target writes itself, after an opening word."""
    rng = random.Random(plan.seed + 1)
    words = [rng.choice(load("words")["opening"]) for _ in range(count)]
    requests = [Request(user_opening(tokenizer, word), 48, 0.9) for word in words]
    eos = eos_ids(model, tokenizer)
    found: list[str] = []
    for index, new in generate(model, requests, eos, slots=plan.slots, seed=plan.seed + 2):
        if new[-1] in eos:  # a turn that did not end is half a question
            found.append(words[index] + tokenizer.decode(new[:-1]))
    return found


def prompts_of(model: Any, tokenizer: Any, plan: WritingPlan) -> list[Request]:
    """The requests of a plan; the same ones each time, so that a killed run goes on."""
    own = round(plan.rows * plan.self_asked)
    texts = self_asked(model, tokenizer, own, plan) if own else []
    texts += questions(plan.rows - len(texts), plan.seed)
    rng = random.Random(plan.seed + 3)
    rng.shuffle(texts)
    limit = getattr(model.config, "max_position_embeddings", 2048)
    requests = []
    for text in texts:
        ids = question_ids(tokenizer, text)[: max(2, limit - plan.max_new)]
        warm = 0.0 if rng.random() < plan.greedy else plan.temperature
        requests.append(Request(ids, plan.max_new, warm))
    return requests


class Written:
    """The rows written so far, saved atomically with the request each answers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[list[int]] = []
        self.starts: list[int] = []
        self.index: list[int] = []
        if path.exists():
            raw = load_file(path)
            offsets = raw["offsets"].tolist()
            flat = raw["tokens"].tolist()
            self.rows = [flat[a:b] for a, b in pairwise(offsets)]
            self.starts, self.index = raw["answer_start"].tolist(), raw["request"].tolist()

    def add(self, index: int, prompt: list[int], new: list[int]) -> None:
        self.rows.append(prompt + new)
        self.starts.append(len(prompt))
        self.index.append(index)

    def data(self) -> TokenData:
        return TokenData.of(self.rows, self.starts)

    def save(self) -> None:
        data = self.data()
        content = {
            "tokens": data.tokens,
            "offsets": data.offsets.to(torch.int32),
            "answer_start": data.answer_start.to(torch.int32),
            "request": torch.tensor(self.index, dtype=torch.int32),
        }
        replace_with(self.path, lambda path: save_file(content, path))


def write_data(
    model: Any,
    tokenizer: Any,
    path: Path,
    plan: WritingPlan,
    *,
    seconds: float = float("inf"),
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> TokenData:
    """Write until the plan is fulfilled or the time is up, going on where a run was cut off."""
    deadline = time.monotonic() + seconds
    written = Written(path)
    requests = prompts_of(model, tokenizer, plan)
    done = set(written.index)
    left = [i for i in range(len(requests)) if i not in done]
    saved = time.monotonic()

    def over() -> bool:
        return time.monotonic() > deadline or (stop is not None and stop())

    rows = generate(
        model,
        [requests[i] for i in left],
        eos_ids(model, tokenizer),
        slots=plan.slots,
        seed=plan.seed + 4 + len(done),
        stop=over,
    )
    for position, new in rows:
        written.add(left[position], requests[left[position]].prompt, new)
        if progress is not None:
            progress(len(written.rows), len(requests))
        if time.monotonic() - saved > plan.save_seconds:
            written.save()
            saved = time.monotonic()
    written.save()
    return written.data()
