"""dsd, the dynamic padding approach: rows are padded on the left again after each round.

Padding is only ever added, so it piles up (I1). The target is given neither positions
nor a mask: padding is read like content (I4), and shifts every position (I2). And the
token after the accepted prefix is the first wrong token of the draft, not the target's
own (I5). No K/V outlive a round, so there is no cache to fall out of step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from engine.config.errors import UserError
from engine.methods.bsp import EndlessRow
from engine.methods.hf_defaults import causal, counted_positions, default_positions, inferred_mask
from engine.models.causal_lm import LanguageModel
from engine.models.forward_input import Feed
from engine.models.kv_cache import LedgerArray, Write
from engine.records.row import Span
from engine.rounds.acceptance import Acceptance, Verdict
from engine.rounds.draft_model import DraftTokens, ModelDraft
from engine.rounds.layout import Layout, Plan, Synchronised
from engine.rounds.method import Method
from engine.rounds.packed_logits import Logits
from engine.rounds.sampling import Sampler
from engine.rounds.sequence import Sequence
from engine.rounds.side import MaskArray, Side


class PilingPadding(Layout):
    """A left-padded rectangle that only grows, and is read from scratch in every round."""

    keeps_cache = False

    def __init__(self, target: LanguageModel, draft: LanguageModel | None, plan: Plan) -> None:
        if draft is None:
            raise UserError("dsd needs a draft model, and --draft-tokens of at least 1")
        super().__init__(target, draft, plan)

    def admit(self, rows: list[Sequence]) -> None:
        assert not self.rows, "a batch is run to its end before the next one begins"
        self.rows = list(rows)
        self._length = max(row.length for row in rows)
        self.paddings = {row.index: self._length - row.length for row in rows}
        self._forget()

    def _forget(self) -> None:
        for side in self.sides:
            side.valid = {row.index: 0 for row in self.rows}

    def committed(self, count: int, device: torch.device) -> Tensor:
        """The last `count` columns of the rectangle, padding filled with the pad id."""
        block = np.zeros((len(self.rows), count), np.int64)
        for place, row in enumerate(self.rows):
            have = min(count, row.length)
            block[place, : count - have] = row.pad_id
            block[place, count - have :] = row.tokens[row.length - have :]
        return torch.from_numpy(block).to(device)

    # ---- the round -------------------------------------------------------------------

    def feed(
        self,
        side: Side,
        ids: Tensor,
        offset: int,
        *,
        keep: int = 0,
        counts: list[int] | None = None,
        latest: bool = False,
    ) -> Tensor:
        """The draft, as `generate` runs it: the rectangle, then a token at a time."""
        start, tokens = self._length + offset, ids.shape[1]
        if start == 0:
            side.store.clear(len(self.rows), self._length + self.room)
            pad_id = self.rows[0].pad_id
            self._inferred = inferred_mask(ids.cpu().numpy(), pad_id, side.model.eos_ids)
        mask = np.ones((len(ids), start + tokens), bool)
        mask[:, : self._length] = self._inferred
        positions = counted_positions(mask)[:, start:]
        return self._run(side, ids, mask, positions, start, keep=keep, ahead=offset >= 0)

    def verify(self, block: Tensor, counts: list[int]) -> Tensor:
        """The target over everything, from scratch, without a mask and without positions."""
        side, tokens = self.target, block.shape[1]
        before = self.committed(self._length, block.device)[:, :-1]
        ids = torch.cat([before, block], dim=1)
        rows, width = ids.shape
        side.store.clear(rows, width)
        mask = np.ones((rows, width), bool)
        positions = default_positions(side.model, 0, width, mask)
        logits = self._run(side, ids, mask, positions, 0, keep=tokens)
        side.narrow(slice(None), slice(-tokens, None))
        return logits

    def _run(
        self,
        side: Side,
        ids: Tensor,
        mask: MaskArray,
        positions: LedgerArray,
        start: int,
        *,
        keep: int,
        ahead: bool = False,
    ) -> Tensor:
        rows, tokens = ids.shape
        columns = start + np.arange(tokens)
        cells = np.arange(rows)[:, None] * side.store.columns + columns
        write = Write(rows=rows, read=start + tokens, start=start)
        full = torch.from_numpy(causal(mask, start))[:, None]
        at = torch.from_numpy(positions)
        feed = Feed(ids, at, full, write, ahead=ahead, columnwise=True)
        return side.run(feed, cells=cells, keep=keep)

    def synchronise(self) -> Synchronised:
        for side in self.sides:
            side.stamp()
        new_length = max(self.paddings[row.index] + row.length for row in self.rows)
        deltas = {row.index: new_length - self._length_of(row) for row in self.rows}
        self.paddings = {row.index: new_length - row.length for row in self.rows}
        self._length = new_length
        if any(row.finish_reason in ("length", "context") for row in self.rows):
            self._stop("batch")
        elif self.columns_left() <= 0:
            self._stop("context")
        self.rows = [row for row in self.rows if row.running]
        self._forget()
        return Synchronised({row.index: deltas[row.index] for row in self.rows})

    def _length_of(self, row: Sequence) -> int:
        return self.paddings[row.index] + row.length

    def _stop(self, reason: str) -> None:
        """One row that has its budget ends the whole batch."""
        for row in self.rows:
            row.stop(reason)

    def columns_left(self) -> int:
        """Draft tokens for which both models still have positions: columns count as such."""
        return min(side.model.context for side in self.sides) - self._length

    # ---- what others ask ---------------------------------------------------------------

    def padding(self, row: Sequence) -> int:
        return self.paddings[row.index]

    def length(self) -> int:
        return self._length

    def content_cells(self, side: Side, row: Sequence, count: int) -> LedgerArray:
        first = self.place(row) * side.store.columns + self.paddings[row.index]
        return first + np.arange(count)

    def fed_spans(self, row: Sequence, drafted: tuple[int, ...]) -> tuple[Span, ...]:
        """Positions are columns, and everything is attended to, padding included."""
        block = Span(
            kind="stale",
            length=len(drafted),
            tokens=drafted,
            position=self._length,
            attended=True,
        )
        return (*self.kept_spans(row), block) if drafted else self.kept_spans(row)

    def kept_spans(self, row: Sequence) -> tuple[Span, ...]:
        padding = self.paddings[row.index]
        content = Span(kind="content", length=row.length, position=padding, attended=True)
        if not padding:
            return (content,)
        return (Span(kind="pad", length=padding, position=0, attended=True), content)


class GenerateDraft(ModelDraft):
    """Draft tokens as the library's greedy `generate` makes them, cache and mask its own.

    After a drafted eos a row is filled with the pad id; when all rows have ended, the
    round gets by with fewer draft tokens.
    """

    def limit(self, row: Sequence, draft_tokens: int) -> int:
        return min(max(1, draft_tokens), row.remaining)

    def draft_up_to(self, layout: Layout, counts: list[int], sampler: Sampler) -> DraftTokens:
        assert isinstance(layout, PilingPadding)
        side = layout.draft
        assert side is not None
        steps = min(min(counts), layout.columns_left())
        rectangle = layout.committed(layout.length(), side.model.device)
        logits = layout.feed(side, rectangle, -layout.length(), keep=1)[:, -1]
        ends = torch.tensor(side.model.eos_ids, device=logits.device, dtype=torch.int64)
        ended = torch.zeros(len(layout.rows), dtype=torch.bool, device=logits.device)
        tokens: list[Tensor] = []
        for step in range(steps):
            token, _ = sampler.draft(side.model, logits, layout.rows, step)
            token = token.masked_fill(ended, layout.rows[0].pad_id)
            tokens.append(token)
            ended = ended | torch.isin(token, ends)
            if step + 1 == steps or bool(ended.all()):
                break
            logits = layout.feed(side, token[:, None], step)[:, -1]
        return DraftTokens(torch.stack(tokens, dim=1), [len(tokens)] * len(layout.rows))

    def learn(self, layout: Layout, row: Sequence, accepted: int, drafted: int) -> None:
        pass  # no cache is kept


class FirstWrong(Acceptance):
    """The accepted prefix and the draft's first wrong token, in place of the bonus."""

    def judge(
        self, logits: Logits, drafted: DraftTokens, rows: list[Sequence], sampler: Sampler
    ) -> list[Verdict]:
        verdicts = super().judge(logits, drafted, rows, sampler)
        return [replace(v, bonus=_token_at(v.draft_token_ids, v.accepted)) for v in verdicts]


def _token_at(drafted: tuple[int, ...], place: int) -> int | None:
    return drafted[place] if place < len(drafted) else None


class PadSeekingRow(EndlessRow):
    """A row whose output is found by looking for the pad id.

    It begins its prompt's length after the first token that is not the pad id. A prompt
    that begins with the pad id loses as many tokens of its output.
    """

    @property
    def output(self) -> list[int]:
        leading = int((self.tokens != self.pad_id).argmax()) if self.length else 0
        return [int(token) for token in self.tokens[self.prompt_length + leading :]]


METHOD = Method(layout=PilingPadding, drafter=GenerateDraft, accept=FirstWrong, row=PadSeekingRow)
