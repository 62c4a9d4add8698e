"""The oracle: autoregressive decoding of each row alone, through the same engine.

It is what every correct method must equal under greedy decoding. Beside the tokens it
gives, for each of them, the distance between the two best logits, and it measures the
tolerance within which such a distance is a matter of rounding.

Under `strict` all forwards have one fixed shape, the oracle's too: then equality is
exact in every dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch
from torch import Tensor

from engine.accept import Lossless, Verdict
from engine.attribution import Answer
from engine.draft import NoDraft, Proposals
from engine.errors import UserError
from engine.layout.base import Layout
from engine.loop import Loop
from engine.methods import method_named
from engine.records import Prompt
from engine.run import build_loop
from engine.sampling import Sampler
from engine.sequence import Sequence
from engine.settings import Sampling, Settings

if TYPE_CHECKING:
    from engine.pairs.load import Pair

BEST = 128
"""How many of the target's best tokens at each place are kept to measure the tolerance:
those that could be chosen there."""

Progress = Callable[[int, int], None]
"""Called with (rows answered, tokens so far); an exception that it raises cancels."""


class Shape(NamedTuple):
    """The fixed shape of strict mode: answers of different shapes are different answers."""

    rows: int
    draft_tokens: int
    columns: int


class _Key(NamedTuple):
    ids: tuple[int, ...]
    budget: int
    error: str | None
    shape: Shape | None


@dataclass(frozen=True)
class _Kept:
    """An answer, and the best logits at each of its places.

    Attributes:
        tokens: ids of the best tokens, [output tokens, BEST], best first.
        logits: theirs, same shape.
    """

    answer: Answer
    tokens: Tensor
    logits: Tensor


class Oracle:
    """Answers and tolerances for one pair. What was once computed is kept."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._kept: dict[_Key, _Kept] = {}
        self._noise: dict[tuple[tuple[_Key, ...], int, int], float] = {}

    def answers(
        self,
        prompts: Seq[Prompt],
        settings: Settings,
        progress: Progress = lambda rows, tokens: None,
    ) -> Iterator[Answer]:
        """The oracle's answer to each prompt, in order, as they are ready.

        Args:
            settings: budget, and in strict mode B, K (which fix the shape).

        Raises:
            UserError: temperature above 0, where equality of outputs means nothing.
        """
        if not settings.sampling.greedy:
            raise UserError("the oracle is greedy: use --temperature 0")
        shape = _shape(prompts, settings, self.pair.target.context)
        tokens = 0
        for number, prompt in enumerate(prompts):
            key = _key(prompt, settings, shape)
            if key not in self._kept:
                tell = partial(_tell, progress, number, tokens)
                self._kept[key] = self._decode(prompt, settings, shape, tell)
            answer = msgspec.structs.replace(self._kept[key].answer, index=prompt.index)
            tokens += len(answer.output_ids)
            progress(number + 1, tokens)
            yield answer

    def tolerance(self, prompts: Seq[Prompt], settings: Settings) -> float:
        """How far apart two logits may be and still change places by rounding.

        Twice the largest difference that the target's logits show between the oracle's
        shape (one row, one token) and the methods' (B rows, K + 1 tokens, in a padded
        rectangle and in slots), when both are made to write the oracle's own answers.
        """
        shape = _shape(prompts, settings, self.pair.target.context)
        list(self.answers(prompts, settings))
        keys = tuple(_key(prompt, settings, shape) for prompt in prompts)
        at = (keys, settings.batch_size, _draft_tokens(settings))
        if at not in self._noise:
            kept = {
                prompt.index: self._kept[key] for prompt, key in zip(prompts, keys, strict=True)
            }
            self._noise[at] = max(
                self._recite(prompts, kept, settings, method) for method in ("eqspec", "slotspec")
            )
        return 2.0 * self._noise[at]

    def _decode(
        self,
        prompt: Prompt,
        settings: Settings,
        shape: Shape | None,
        progress: Callable[[int], None],
    ) -> _Kept:
        row = self._row(prompt, settings.max_new_tokens)
        watch = _Watch()
        loop = self._alone(row, settings, shape)
        loop.accept = watch
        for count, _ in enumerate(loop.rounds(), start=1):
            progress(count)
        tokens, logits = watch.best(len(row.output))
        gaps = (logits[:, 0] - logits[:, 1]).tolist() if logits.shape[-1] > 1 else []
        answer = Answer(
            index=prompt.index,
            output_ids=tuple(row.output),
            finish_reason=row.finish_reason or "error",
            error=row.error,
            gaps=tuple(gaps),
        )
        return _Kept(answer, tokens, logits)

    def _alone(self, row: Sequence, settings: Settings, shape: Shape | None) -> Loop:
        """The loop that decodes one row alone.

        The seam of strict mode: there the row is alone in slots of the fixed shape.
        """
        assert shape is None, "strict mode"
        alone = Settings(
            method="autoregressive", batch_size=1, max_new_tokens=settings.max_new_tokens
        )
        return build_loop(method_named("autoregressive"), self.pair, alone, [row], 0)

    def _recite(
        self, prompts: Seq[Prompt], kept: dict[int, _Kept], settings: Settings, method: str
    ) -> float:
        """Write the oracle's answers in a method's shape; the largest logit difference."""
        rows = [
            self._row(prompt, len(kept[prompt.index].answer.output_ids))
            for prompt in prompts
            if prompt.error is None
        ]
        draft_tokens = _draft_tokens(settings)
        reciting = msgspec.structs.replace(
            settings, method=method, draft_tokens=draft_tokens, sampling=Sampling(), fault=""
        )
        no_model = replace(self.pair, draft=None)
        loop = build_loop(method_named(method), no_model, reciting, rows, 0)
        recital = _Recital(kept)
        loop.drafter = loop.accept = recital
        for _ in loop.rounds():
            pass
        return recital.largest

    def _row(self, prompt: Prompt, budget: int) -> Sequence:
        return Sequence(
            prompt,
            budget=budget,
            context=self.pair.target.context,
            eos_ids=frozenset(self.pair.tokenizer.eos_ids),
        )


class _Watch(Lossless):
    """Greedy choice of one row that remembers the best logits at each place."""

    def __init__(self) -> None:
        self._best: list[tuple[Tensor, Tensor]] = []

    def judge(
        self, logits: Tensor, proposals: Proposals, rows: list[Sequence], sampler: Sampler
    ) -> list[Verdict]:
        top = logits[0, -1].topk(min(BEST, logits.shape[-1]))
        self._best.append((top.indices.cpu(), top.values.cpu()))
        return super().judge(logits, proposals, rows, sampler)

    def best(self, count: int) -> tuple[Tensor, Tensor]:
        """Tokens and their logits at the first `count` places."""
        if not count:
            return torch.zeros((0, BEST), dtype=torch.int64), torch.zeros((0, BEST))
        tokens, logits = zip(*self._best[:count], strict=True)
        return torch.stack(tokens), torch.stack(logits).double()


class _Recital(NoDraft, Lossless):
    """Proposes what the oracle answered, accepts all of it, and compares the logits."""

    def __init__(self, kept: dict[int, _Kept]) -> None:
        self.kept = kept
        self.largest = 0.0

    def limit(self, row: Sequence, draft_tokens: int) -> int:
        return row.draft_limit(draft_tokens)

    def propose(self, layout: Layout, counts: list[int], sampler: Sampler) -> Proposals:
        tokens = torch.zeros((len(counts), max(counts)), dtype=torch.int64)
        for place, (row, count) in enumerate(zip(layout.rows, counts, strict=True)):
            tokens[place, :count] = torch.tensor(self._next(row)[:count], dtype=torch.int64)
        return Proposals(tokens.to(layout.target.model.device), list(counts))

    def judge(
        self, logits: Tensor, proposals: Proposals, rows: list[Sequence], sampler: Sampler
    ) -> list[Verdict]:
        verdicts = []
        for place, (row, count) in enumerate(zip(rows, proposals.counts, strict=True)):
            kept, start = self.kept[row.index], row.length - row.prompt_length
            span = slice(start, start + count + 1)
            mine = logits[place, : count + 1].gather(-1, kept.tokens[span].to(logits.device))
            apart = (mine.double().cpu() - kept.logits[span]).abs()
            self.largest = max(self.largest, float(apart.max()))
            block = self._next(row)[: count + 1]
            verdicts.append(Verdict(tuple(block[:-1]), count, block[-1], tuple(block)))
        return verdicts

    def _next(self, row: Sequence) -> list[int]:
        """What the row has still to write."""
        return list(self.kept[row.index].answer.output_ids[row.length - row.prompt_length :])


def _tell(progress: Progress, rows: int, tokens: int, more: int) -> None:
    progress(rows, tokens + more)


def _shape(prompts: Iterable[Prompt], settings: Settings, context: int) -> Shape | None:
    if not settings.strict:
        return None
    longest = max((len(prompt.ids) for prompt in prompts), default=0)
    columns = min(longest + settings.max_new_tokens, context)
    return Shape(settings.batch_size, _draft_tokens(settings), columns)


def _key(prompt: Prompt, settings: Settings, shape: Shape | None) -> _Key:
    return _Key(prompt.ids, settings.max_new_tokens, prompt.error, shape)


def _draft_tokens(settings: Settings) -> int:
    """K; for `auto` the most that is worth measuring."""
    return 5 if settings.draft_tokens == "auto" else settings.draft_tokens
