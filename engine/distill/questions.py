"""Questions like people ask, drawn from templates: what a draft should learn to continue.

The answers come from the target; the questions only have to spread over what is asked:
writing, facts, advice, reasoning, sums, code, translation, summaries, extraction.
"""

from __future__ import annotations

import random

from engine.distill.texts import load

SHARES = {
    "writing": 0.2,
    "facts": 0.2,
    "advice": 0.1,
    "reasoning": 0.1,
    "sums": 0.1,
    "code": 0.1,
    "translation": 0.05,
    "lists": 0.02,
    "summary": 0.06,
    "extraction": 0.05,
    "answering": 0.02,
}
"""How often each kind is asked."""


def fill(rng: random.Random, template: str, **given: str) -> str:
    """A template with each name in braces replaced by a word of that kind, or by what is given."""
    words: dict[str, list[str]] = load("words")
    values: dict[str, str | int] = {kind: rng.choice(choices) for kind, choices in words.items()}
    values["topic"], values["topic2"] = rng.sample(words["topic"], 2)
    values["name"], values["name2"] = rng.sample(words["name"], 2)
    values["goods"], values["goods2"] = rng.sample(words["goods"], 2)
    values["month"], values["month2"] = rng.sample(words["month"], 2)
    values["words"] = ", ".join(rng.sample(words["goods"], rng.randint(4, 6)))
    values["low"] = f"{values['name']}.{values['surname']}".lower()
    values |= {"n": rng.randint(2, 9), "m": rng.randint(11, 99), "m2": rng.randint(11, 99)}
    values |= {"a": rng.randint(3, 90), "b": rng.randint(2, 40), "c": rng.randint(2, 12)}
    values |= {"day": rng.randint(1, 28), "year": rng.randint(1850, 2015)}
    values |= {"year2": rng.randint(2024, 2035)}
    return template.format(**(values | given))


def report(rng: random.Random) -> str:
    """Four to six sentences of news about nothing in particular."""
    parts = load("passages")
    middles = rng.sample(parts["middles"], rng.randint(2, 4))
    chosen = [rng.choice(parts["openings"]), *middles, rng.choice(parts["closings"])]
    return " ".join(fill(rng, part) for part in chosen)


def record(rng: random.Random) -> tuple[str, str]:
    """A text with facts in it, and what is to be found there."""
    chosen = rng.choice(load("passages")["records"])
    return fill(rng, chosen["text"]), rng.choice(chosen["asked"])


def question(rng: random.Random) -> str:
    """One question of a random kind."""
    kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
    template = rng.choice(load("templates")[kind])
    text, asked = record(rng) if kind == "extraction" else (report(rng), "")
    return fill(rng, template, text=text, asked=asked)


def questions(count: int, seed: int = 0) -> list[str]:
    """``count`` different questions, the same ones for the same seed."""
    rng = random.Random(seed)
    seen: dict[str, None] = {}
    tries = 0
    while len(seen) < count and tries < 20 * count + 100:
        tries += 1
        seen.setdefault(question(rng))
    return list(seen)
