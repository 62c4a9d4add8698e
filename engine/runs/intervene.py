"""Interventions: what can be changed between two rounds, with the rows where they stand.

Each is called in the engine's thread and returns the record that tells of it. From the
next round on the run goes on otherwise; nothing that was committed is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from typing import Any

import msgspec

from engine.config.errors import UserError
from engine.config.settings import Settings
from engine.microscope.inspect import NotingSampler
from engine.records.schema import ChangeKind, ChangeRecord
from engine.runs.run import Run
from engine.text.prompts import PromptEntry, encode_prompts


def change(run: Run, settings: Settings) -> ChangeRecord:
    """Go on under other settings: method, K, B, temperature, … The models stay.

    A smaller K (or one that was there before) costs nothing; for everything else the rows
    that still run are prefilled again.

    Raises:
        UserError: the settings cannot be used; the run goes on as it was.
    """
    settings.check()
    was = run.settings
    only_k = msgspec.structs.replace(was, draft_tokens=settings.draft_tokens) == settings
    if not (only_k and run.change_k(settings)):
        with _wanted_kept(run):
            run.restart(settings)
    header = run.header()
    return _record(run, changed=changed(was, settings), settings=header.settings)


def changed(was: Settings, now: Settings) -> tuple[str, ...]:
    """Names of the settings that differ."""
    old, new = _flat(was), _flat(now)
    return tuple(name for name, value in new.items() if old[name] != value)


def _flat(settings: Settings) -> dict[str, object]:
    values: dict[str, object] = msgspec.to_builtins(settings)
    sampling = values.pop("sampling")
    assert isinstance(sampling, dict)
    return values | sampling


def add_prompt(run: Run, text: str, chat: bool | None = None) -> ChangeRecord:
    """Put a prompt at the end of the queue.

    Raises:
        UserError: it cannot run.
    """
    pair = run.pair
    limit = pair.target.context
    if pair.draft is not None:
        limit = min(limit, pair.draft.context)
    (encoded,) = encode_prompts([PromptEntry(text=text)], pair.tokenizer, chat, limit)
    if encoded.error is not None:
        raise UserError(encoded.error)
    prompt = msgspec.structs.replace(encoded, index=len(run.prompts))
    with _wanted_kept(run):
        run.join(prompt)
    return _record(run, "prompts", prompts=(prompt,), ids=prompt.ids)


def go_back(run: Run, lengths: Mapping[int, int], number: int) -> ChangeRecord:
    """Let rows go back to so many committed tokens each, and the run go on from there.

    Args:
        lengths: by request index; a row that had fewer then, or is not named, stays.
        number: the round that they stood so after, for the record.
    """
    now = run.lengths()
    earlier = {row: length for row, length in lengths.items() if length < now.get(row, 0)}
    with _wanted_kept(run):
        run.restart(lengths=earlier)
    return _record(run, "back", back=number, rows=tuple(earlier))


def force(run: Run, row: int, text: str) -> ChangeRecord:
    """Have a row's draft say this next; the target judges it like any other draft token.

    Args:
        text: what is to be drafted, or token ids as in "#1820 #11".

    Raises:
        UserError: no draft model speaks for this row, or there is nothing to say.
    """
    loop = run.loop
    sequence = next((entry for entry in run.rows if entry.index == row), None)
    if not isinstance(loop.sampler, NotingSampler):
        raise UserError("tokens can only be forced in a run that is inspected")
    if sequence is None or not sequence.running:
        raise UserError(f"row {row} has ended")
    if loop.layout.draft is None:
        raise UserError("no draft model drafts anything in this run")
    tokens = tokens_of(run, text)
    loop.sampler.wanted[row] = tokens
    record = _record(run, "forced", rows=(row,), token_ids=tokens, ids=tokens)
    pieces = {token: run.pair.tokenizer.piece(token) for token in tokens}
    return msgspec.structs.replace(record, pieces=pieces)


@contextmanager
def _wanted_kept(run: Run) -> Iterator[None]:
    """What is to be drafted next is asked for still when the loop is made anew."""
    before = run.loop.sampler
    yield
    after = run.loop.sampler
    if isinstance(before, NotingSampler) and isinstance(after, NotingSampler):
        after.wanted = before.wanted


def tokens_of(run: Run, text: str) -> tuple[int, ...]:
    """The token ids of a text, or of "#1820 #11".

    Raises:
        UserError: none, or one that the models do not have.
    """
    words = text.split()
    tokenizer = run.pair.tokenizer
    if words and all(word[0] == "#" and word[1:].isdecimal() for word in words):
        tokens = tuple(int(word[1:]) for word in words)
    else:
        tokens = tuple(token for token in tokenizer.encode(text) if token != tokenizer.bos_id)
    known = min(tokenizer.vocabulary, run.pair.target.vocabulary)
    unknown = [token for token in tokens if token >= known]
    if unknown:
        raise UserError(f"token id {unknown[0]} is outside the vocabulary (0 … {known - 1})")
    if not tokens:
        raise UserError("there is no token in it")
    return tokens


def _record(
    run: Run, kind: ChangeKind = "settings", *, ids: Seq[int] = (), **facts: Any
) -> ChangeRecord:
    """The record of a change.

    Args:
        ids: token ids that it names.
    """
    return ChangeRecord(
        lane=run.lane,
        round=run.loop.round,
        kind=kind,
        method=run.settings.method,
        pieces=run.new_pieces(ids),
        **facts,
    )
