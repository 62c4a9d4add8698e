"""A made-up run of each layout: faithful records without a model.

The tokens are drawn from a seeded stream, the layouts are the methods' own:
a left-padded rectangle that is padded again (eqspec), rows that are grouped by
length (exspec), slots with stale tails (slotspec), holes (bsp) and padding that
piles up (dsd).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.records.fold import totals_of
from engine.records.row import PoolRow, RowRound, Span
from engine.records.schema import (
    PairInfo,
    Phases,
    Prompt,
    Record,
    RoundRecord,
    RowSummary,
    RunHeader,
    Summary,
)
from engine.records.violation import Violation

PROMPTS = (
    "The capital of France is",
    "Write a short poem about the sea at night , in two lines .",
    "Q : Why does bread rise when it is baked ? A :",
    "Translate to German : the weather is fine today",
    "def fibonacci ( n ) :",
    "Summarise : batch decoding verifies the draft tokens of many rows at once , but each row "
    "accepts a different number of them , and so the rows drift apart",
    "List three colours :",
    "A train leaves at nine and drives for two hours . When does it arrive ?",
)
WORDS = (
    " the of and a to in is that it was for on are as with his they at be this from or had by "
    "but some what there we can out other were all your when up use word how said an each she "
    "which do their time if will way about many then them would like so these her long make "
    "thing see him two has look more day could go come did my sound no most number who over "
    "know water than call first people may down side been now find any new work part take get "
    "place made live where after back little only round man year came show every good me give "
    "our under name very through just form great think say help low line before turn cause much"
).split(" ")


@dataclass
class Row:
    """A row of the made-up run."""

    index: int
    tokens: list[int]
    prompt: int
    budget: int
    pad: int = 0
    joined: int = 0
    last_round: int = 0
    blocks: list[Span] = field(default_factory=list)
    """bsp: the row's cells so far."""
    finished: str = ""
    accepted: int = 0
    drafted: int = 0
    rounds: int = 0

    @property
    def done(self) -> int:
        return len(self.tokens) - self.prompt

    @property
    def last(self) -> int:
        return len(self.tokens) - 1


class Vocabulary:
    """Word pieces by number, given out as they are needed."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.pieces: dict[int, str] = {}

    def id(self, piece: str) -> int:
        if piece not in self.ids:
            self.ids[piece] = len(self.ids) + 2
            self.pieces[self.ids[piece]] = piece
        return self.ids[piece]


def prompt_pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [words[0]] + [" " + word for word in words[1:]]


def records(
    method: str = "eqspec",
    *,
    batch_size: int = 4,
    draft_tokens: int = 5,
    max_new_tokens: int = 60,
    prompts: tuple[str, ...] = PROMPTS,
    words: tuple[str, ...] | list[str] = tuple(WORDS),
    seed: int = 1,
    lane: int = 0,
    pair: str = "made-up",
    ends: float = 0.012,
) -> Iterator[Record]:
    """All records of one made-up run; `ends`: how likely a row ends by itself in a round."""
    rng = random.Random(seed)
    vocabulary = Vocabulary()
    rows = []
    known: set[int] = set()
    for index, text in enumerate(prompts):
        ids = [vocabulary.id(piece) for piece in prompt_pieces(text)]
        rows.append(Row(index, list(ids), len(ids), max_new_tokens))
    known = set(vocabulary.pieces)
    yield RunHeader(
        lane=lane,
        method=method,
        pair=PairInfo(name=pair, target="made-up target", draft="made-up draft", eos_ids=(0,)),
        settings={
            "method": method,
            "batch_size": batch_size,
            "draft_tokens": draft_tokens,
            "window": 24,
            "max_new_tokens": max_new_tokens,
            "device": "cpu",
            "dtype": "bfloat16",
        },
        prompts=tuple(
            Prompt(index=row.index, ids=tuple(row.tokens), text=prompts[row.index]) for row in rows
        ),
        pieces=dict(vocabulary.pieces),
    )
    waiting = list(rows)
    batch: list[Row] = []
    rounds: list[RoundRecord] = []
    number, elapsed = 0, 0.0
    length = 0
    while waiting or batch:
        admitted: list[int] = []
        continuous = method in ("slotspec", "exspec")
        room = batch_size if method != "exspec" else batch_size * 2
        if not batch or continuous:
            while waiting and len(batch) < room:
                row = waiting.pop(0)
                batch.append(row)
                row.joined = number
                row.last_round = number
                admitted.append(row.index)
            if admitted and not continuous:
                longest = max(len(row.tokens) for row in batch)
                for row in batch:
                    row.pad = longest - len(row.tokens)
                    row.blocks = [
                        Span(kind="content", length=len(row.tokens), position=0, attended=True)
                    ]
                    if row.pad:
                        row.blocks.append(Span(kind="pad", length=row.pad))
                length = longest
        number += 1
        chosen, kind = choose(method, batch, batch_size, number)
        if kind in ("grouped", "fallback"):
            length = max(len(row.tokens) for row in chosen)
            for row in chosen:
                row.pad = length - len(row.tokens)
        if method == "slotspec":
            length = max(len(row.tokens) for row in chosen)
        record = one_round(
            method, chosen, kind, number, length, draft_tokens, rng, vocabulary, words, ends
        )
        fresh = {token: piece for token, piece in vocabulary.pieces.items() if token not in known}
        known |= set(fresh)
        done = tuple(row.index for row in chosen if row.finished)
        batch = [row for row in batch if not row.finished]
        scale = 0.004 + 0.002 * rng.random()
        moved = sum(abs(row.delta) for row in record.rows) if method != "slotspec" else 0
        seconds = Phases(
            prefill=0.03 if admitted else 0.0,
            draft=scale * draft_tokens * 0.5,
            verify=scale * (1.6 + 0.5 * rng.random()),
            accept=scale * 0.12,
            realign=scale * 0.05 * min(moved, 12) / 4,
            schedule=scale * 0.03,
        )
        elapsed += seconds.total
        length = record.length
        record = RoundRecord(
            round=number,
            lane=lane,
            rows=record.rows,
            length=record.length,
            length_before=record.length_before,
            draft_tokens=draft_tokens,
            kind=kind,  # type: ignore[arg-type]
            pool=tuple(
                PoolRow(row=row.index, content=len(row.tokens), waited=number - row.last_round)
                for row in batch
                if row not in chosen
            ),
            queued=len(waiting),
            admitted=tuple(admitted),
            left=done,
            seconds=seconds,
            elapsed=elapsed,
            realign_bytes=moved * 4096,
            checked=("I1", "I2", "I3", "I4", "I5"),
            violations=record.violations,
            pieces=fresh,
        )
        rounds.append(record)
        yield record
    yield Summary(
        lane=lane,
        rows=tuple(
            RowSummary(
                index=row.index,
                prompt_ids=tuple(row.tokens[: row.prompt]),
                output_ids=tuple(row.tokens[row.prompt :]),
                text="".join(vocabulary.pieces.get(t, "") for t in row.tokens[row.prompt :]),
                finish_reason=row.finished,
                error=None,
                rounds=row.rounds,
                accepted=row.accepted,
                drafted=row.drafted,
            )
            for row in rows
        ),
        totals=totals_of(rounds),
    )


def choose(method: str, batch: list[Row], size: int, number: int) -> tuple[list[Row], str]:
    """The rows of this round, and how they were put together."""
    if method == "slotspec":
        return list(batch), "slots"
    if method != "exspec":
        return list(batch), "batch"
    groups: dict[int, list[Row]] = {}
    for row in batch:
        groups.setdefault(len(row.tokens), []).append(row)
    best = max(groups.values(), key=lambda group: (len(group), number - group[0].last_round))
    if len(best) >= 2:
        return best[:size], "grouped"
    by_wait = sorted(batch, key=lambda row: (row.last_round, row.index))
    return sorted(by_wait[:size], key=lambda row: row.index), "fallback"


def one_round(
    method: str,
    rows: list[Row],
    kind: str,
    number: int,
    length: int,
    k: int,
    rng: random.Random,
    vocabulary: Vocabulary,
    words: tuple[str, ...] | list[str],
    ends: float,
) -> RoundRecord:
    """Draft, verify and commit for the rows; their layout after that."""
    drafts: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = []
    for row in rows:
        count = max(0, min(k, row.budget - row.done - 1))
        new = [vocabulary.id(" " + rng.choice(words)) for _ in range(count + 1)]
        accepted = 0
        while accepted < count and rng.random() < 0.68:
            accepted += 1
        wrong = [vocabulary.id(" " + rng.choice(words)) for _ in range(count)]
        draft_token_ids = tuple(new[:accepted] + wrong[accepted:count])
        drafts.append((draft_token_ids, accepted, tuple(new[: accepted + 1])))
    widest = max(len(committed) for _, _, committed in drafts)
    block = max(len(draft_token_ids) for draft_token_ids, _, _ in drafts)
    after = max(len(row.tokens) + len(new) for row, (_, _, new) in zip(rows, drafts, strict=True))
    out: list[RowRound] = []
    violations: list[Violation] = []
    for place, (row, (draft_token_ids, accepted, committed)) in enumerate(
        zip(rows, drafts, strict=True)
    ):
        before = len(row.tokens)
        own = Span(kind="content", length=before, position=0, attended=True)
        draft = Span(
            kind="stale",
            length=max(1, len(draft_token_ids)),
            tokens=draft_token_ids,
            position=before,
            attended=True,
        )
        drafted = (draft,) if draft_token_ids else ()
        row.tokens.extend(committed)
        row.accepted += accepted
        row.drafted += len(draft_token_ids)
        row.rounds += 1
        content = len(row.tokens)
        all_own = Span(kind="content", length=content, position=0, attended=True)
        pad = row.pad
        if method == "slotspec":
            fed: tuple[Span, ...] = (own, *drafted)
            tail = draft_token_ids[accepted + 1 :]
            stale = (Span(kind="stale", length=len(tail), tokens=tail, position=content),)
            kept: tuple[Span, ...] = (all_own, *(stale if tail else ()))
            new_pad = 0
        elif method == "bsp":
            fed = (*row.blocks, Span(kind="content", length=1, first=before - 1), *drafted)
            fed = (*row.blocks, *drafted)
            holes = len(draft_token_ids) - accepted
            position = length + 0
            taken = Span(
                kind="content",
                length=accepted,
                first=before,
                position=position,
                attended=True,
            )
            hole = Span(kind="stale", length=holes, tokens=draft_token_ids[accepted:])
            bonus = Span(
                kind="content",
                length=1,
                first=content - 1,
                position=position + len(draft_token_ids),
                attended=True,
            )
            row.blocks += [span for span in (taken, hole, bonus) if span.length]
            kept = tuple(row.blocks)
            new_pad = row.pad + holes
            if holes:
                violations.append(
                    Violation(
                        invariant="I2",
                        row=row.index,
                        note=f"positions {position + accepted} to "
                        f"{position + len(draft_token_ids) - 1} were skipped",
                        since=number,
                    )
                )
        elif method == "dsd":
            fed = (*((Span(kind="pad", length=pad),) if pad else ()), own, *drafted)
            new_pad = pad + widest - len(committed)
            kept = (*((Span(kind="pad", length=new_pad),) if new_pad else ()), all_own)
            if number > 2:
                violations.append(
                    Violation(
                        invariant="I1",
                        row=None,
                        note="padding piles up: the smallest padding is not 0",
                        since=3,
                    )
                )
        else:
            fed = (*((Span(kind="pad", length=pad),) if pad else ()), own, *drafted)
            new_pad = after - content
            kept = (*((Span(kind="pad", length=new_pad),) if new_pad else ()), all_own)
        delta = new_pad - pad if method != "slotspec" else 0
        row.pad = new_pad
        waited = number - row.last_round - 1
        row.last_round = number
        if row.done >= row.budget:
            row.finished = "length"
        elif rng.random() < ends:
            row.finished = "eos"
        out.append(
            RowRound(
                row=row.index,
                place=place,
                draft_token_ids=draft_token_ids,
                accepted=accepted,
                bonus=committed[-1],
                committed=committed,
                before=before,
                content=content,
                padding=new_pad,
                delta=delta,
                kv_length=content - 1,
                draft_kv_length=content - 1,
                positions=tuple(range(before - 1, before + len(draft_token_ids))),
                fed=fed,
                kept=kept,
                text="".join(vocabulary.pieces[token] for token in committed),
                finish_reason=row.finished or None,
                waited=max(0, waited),
            )
        )
    widths = [sum(span.length for span in row.kept) for row in out]
    total = max(row.content for row in out) if method == "slotspec" else max(widths)
    before_length = length if method != "slotspec" else max(row.before for row in out)
    assert block >= 0
    return RoundRecord(
        round=number,
        rows=tuple(out),
        length=total,
        length_before=before_length,
        violations=tuple(violations),
    )
