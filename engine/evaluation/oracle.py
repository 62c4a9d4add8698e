"""The oracle: autoregressive decoding of each row alone, through the same engine.

It is what every correct method must equal under greedy decoding. Beside the tokens it
gives, for each of them, the distance between the two best logits, and it measures the
tolerance within which such a distance is a matter of rounding.

Under `strict` all forwards have one fixed shape, the oracle's too: then equality is
exact in every dtype.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch
from torch import Tensor

from engine.config.errors import UserError
from engine.config.settings import Settings
from engine.records.divergence import Answer
from engine.records.schema import Prompt
from engine.rounds.acceptance import Acceptance, Verdict
from engine.rounds.draft_model import DraftTokens, NoDraft
from engine.rounds.layout import Layout
from engine.rounds.packed_logits import Logits
from engine.rounds.round import Loop
from engine.rounds.sampling import Sampler
from engine.rounds.sequence import Sequence
from engine.runs.run import build_loop, new_row

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
            settings: budget, and in strict mode B and K (which fix the shape).

        Raises:
            UserError: temperature above 0, where equality of outputs means nothing.
        """
        if not settings.sampling.greedy:
            raise UserError("the oracle is greedy: use --temperature 0")
        shape = _shape(prompts, settings, self.pair.target.context)
        keys = {prompt.index: _key(prompt, settings, shape) for prompt in prompts}
        missing = {keys[p.index]: p for p in prompts if keys[p.index] not in self._kept}
        steps = self._decode([*missing.values()], keys, settings, shape)
        tokens = 0
        for number, prompt in enumerate(prompts):
            key = keys[prompt.index]
            while key not in self._kept:
                tokens += next(steps)
                progress(number, tokens)
            progress(number + 1, tokens)
            yield msgspec.structs.replace(self._kept[key].answer, index=prompt.index)

    def growing(self, prompt: Prompt, prompts: Seq[Prompt], settings: Settings) -> Iterator[Answer]:
        """The answer to one of the prompts as it grows, a token at a time.

        The last one that comes is the whole answer, with its finish reason, and is kept;
        what was kept before comes at once.

        Raises:
            UserError: as for `answers`.
        """
        if not settings.sampling.greedy:
            raise UserError("the oracle is greedy: use --temperature 0")
        shape = _shape(prompts, settings, self.pair.target.context)
        key = _key(prompt, settings, shape)
        if key not in self._kept:
            watch = _Watch()
            loop, (row,) = self._alone([prompt], settings, shape, watch)
            while row.running and loop.step() is not None:
                yield watch.so_far(row)
            self._kept[key] = watch.kept(row)
        yield msgspec.structs.replace(self._kept[key].answer, index=prompt.index)

    def tolerance(self, prompts: Seq[Prompt], settings: Settings) -> float:
        """How far apart two logits may be and still change places by rounding.

        Twice the largest difference that the target's logits show between the oracle's
        shape (one row, one token) and the methods' (B rows, K + 1 tokens, in a padded
        rectangle and in slots), when both are made to write the oracle's own answers.
        """
        shape = _shape(prompts, settings, self.pair.target.context)
        list(self.answers(prompts, settings))
        keys = tuple(_key(prompt, settings, shape) for prompt in prompts)
        at = (keys, settings.batch_size, settings.largest_draft_tokens)
        if at not in self._noise:
            kept = {
                prompt.index: self._kept[key] for prompt, key in zip(prompts, keys, strict=True)
            }
            self._noise[at] = max(
                self._recite(prompts, kept, settings, shape, name)
                for name in ("eqspec", "slotspec")
            )
        return 2.0 * self._noise[at]

    def _decode(
        self,
        prompts: list[Prompt],
        keys: dict[int, _Key],
        settings: Settings,
        shape: Shape | None,
    ) -> Iterator[int]:
        """Decode the prompts and keep each answer when it is ready; yields after every
        step, with the number of tokens that it made."""
        watch = _Watch()
        loop, rows = self._alone(prompts, settings, shape, watch)
        running = list(rows)
        while running:
            for row in [row for row in running if not row.running]:
                running.remove(row)
                self._kept[keys[row.index]] = watch.kept(row)
            record = loop.step() if running else None
            yield len(record.rows) if record is not None else 0

    def _alone(
        self, prompts: list[Prompt], settings: Settings, shape: Shape | None, watch: _Watch
    ) -> tuple[Loop, list[Sequence]]:
        """The loop that decodes each row alone, one after the other.

        Under strict it decodes in the slots and the one shape that the methods have too.
        There a row's logits do not depend on its companions by a single bit, so rows
        that are together are as good as alone.
        """
        chosen = msgspec.structs.replace(settings, method="autoregressive", fault="", audit=False)
        if shape is None:
            chosen = msgspec.structs.replace(chosen, batch_size=1, draft_tokens=0)
        rows = [new_row(self.pair, chosen, prompt) for prompt in prompts]
        columns = None if shape is None else shape.columns
        return build_loop(self.pair, chosen, rows, columns=columns, accept=watch), rows

    def _recite(
        self,
        prompts: Seq[Prompt],
        kept: dict[int, _Kept],
        settings: Settings,
        shape: Shape | None,
        name: str,
    ) -> float:
        """Write the oracle's answers in a method's shape; the largest logit difference."""
        reciting = msgspec.structs.replace(
            settings, method=name, draft_tokens=settings.largest_draft_tokens, fault="", audit=False
        )
        no_model = replace(self.pair, draft=None)
        rows = []
        for prompt in prompts:
            budget = len(kept[prompt.index].answer.output_ids)
            one = msgspec.structs.replace(reciting, max_new_tokens=budget)
            rows.append(new_row(no_model, one, prompt))
        columns = None if shape is None else shape.columns
        recital = _Recital(kept)
        loop = build_loop(
            no_model, reciting, rows, columns=columns, accept=recital, drafter=recital
        )
        for _ in loop.rounds():
            pass
        return recital.largest


class _Watch(Acceptance):
    """Greedy choice that remembers the best logits at each place of each row."""

    def __init__(self) -> None:
        super().__init__()
        self._best: dict[int, list[tuple[Tensor, Tensor]]] = defaultdict(list)

    def judge(
        self, logits: Logits, drafted: DraftTokens, rows: list[Sequence], sampler: Sampler
    ) -> list[Verdict]:
        top = logits.whole[:, 0].topk(min(BEST, logits.whole.shape[-1]))
        for row, tokens, values in zip(rows, top.indices.cpu(), top.values.cpu(), strict=True):
            self._best[row.index].append((tokens, values.double()))
        return super().judge(logits, drafted, rows, sampler)

    def so_far(self, row: Sequence) -> Answer:
        """The answer as far as it has come."""
        best = self._best[row.index]
        return Answer(
            index=row.index,
            output_ids=tuple(row.output),
            finish_reason="",
            gaps=tuple(float(values[0] - values[1]) for _, values in best[: len(row.output)]),
        )

    def kept(self, row: Sequence) -> _Kept:
        """What is kept of a row that has ended."""
        output = row.output
        best = self._best.pop(row.index, [])[: len(output)]
        tokens = torch.stack([ids for ids, _ in best]) if best else torch.zeros((0, 2))
        logits = torch.stack([values for _, values in best]) if best else torch.zeros((0, 2))
        answer = Answer(
            index=row.index,
            output_ids=tuple(output),
            finish_reason=row.finish_reason or "error",
            error=row.error,
            gaps=tuple((logits[:, 0] - logits[:, 1]).tolist()),
        )
        return _Kept(answer, tokens, logits)


class _Recital(NoDraft, Acceptance):
    """Drafts what the oracle answered, accepts all of it, and compares the logits."""

    def __init__(self, kept: dict[int, _Kept]) -> None:
        super().__init__()
        self.kept = kept
        self.largest = 0.0

    def draft(self, layout: Layout, draft_tokens: int, sampler: Sampler) -> DraftTokens:
        counts = [row.draft_limit(draft_tokens) for row in layout.rows]
        tokens = torch.zeros((len(counts), max(counts)), dtype=torch.int64)
        for place, (row, count) in enumerate(zip(layout.rows, counts, strict=True)):
            tokens[place, :count] = torch.tensor(self._next(row)[:count], dtype=torch.int64)
        return DraftTokens(tokens.to(layout.target.model.device), list(counts))

    def judge(
        self, logits: Logits, drafted: DraftTokens, rows: list[Sequence], sampler: Sampler
    ) -> list[Verdict]:
        verdicts = []
        for place, (row, count) in enumerate(zip(rows, drafted.counts, strict=True)):
            kept, start = self.kept[row.index], row.length - row.prompt_length
            span = slice(start, start + count + 1)
            mine = logits.whole[place, : count + 1].gather(-1, kept.tokens[span].to(logits.device))
            apart = (mine.double().cpu() - kept.logits[span]).abs()
            self.largest = max(self.largest, float(apart.max()))
            block = self._next(row)[: count + 1]
            verdicts.append(Verdict(tuple(block[:-1]), count, block[-1], tuple(block)))
        return verdicts

    def _next(self, row: Sequence) -> list[int]:
        """What the row has still to write."""
        return list(self.kept[row.index].answer.output_ids[row.length - row.prompt_length :])


def _shape(prompts: Iterable[Prompt], settings: Settings, context: int) -> Shape | None:
    if not settings.strict:
        return None
    longest = max((len(prompt.ids) for prompt in prompts), default=0)
    columns = min(longest + settings.max_new_tokens, context)
    return Shape(settings.batch_size, settings.largest_draft_tokens, columns)


def _key(prompt: Prompt, settings: Settings, shape: Shape | None) -> _Key:
    return _Key(prompt.ids, settings.max_new_tokens, prompt.error, shape)
