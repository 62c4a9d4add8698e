"""One row in one round: its cells, its draft tokens and how they were verified."""

from __future__ import annotations

from typing import Literal

import msgspec

SpanKind = Literal["pad", "content", "stale", "ghost"]


class Span(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run of neighbouring cells (columns) of one row of the target's state, left to right.

    kind "pad": padding. "content": committed tokens `first … first + length − 1`
    of the row. "stale": slots whose K/V belong to no committed token (`tokens`
    says which were written there, where known). "ghost": a slot that counts as
    valid but whose K/V are not the row's own.
    """

    kind: SpanKind
    length: int
    first: int = 0
    """Index of the first cell's token among the row's committed tokens (content, ghost)."""
    tokens: tuple[int, ...] = ()
    """Token ids of the cells, where they are not committed tokens of the row (stale, pad)."""
    position: int | None = None
    """Position ID that was fed for the first cell (the next cells count up from it);
    None: none was fed."""
    attended: bool = False
    """Whether the row's queries may attend to these cells, in any layer."""
    beyond: bool = False
    """Whether the cells lie beyond the sliding window: the layers that have one see nothing
    of them."""


class AcceptTest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one draft token was verified."""

    token: int
    draft_prob: float = 1.0
    target_prob: float = 0.0
    draw: float | None = None
    """u of the test u·q(x) < p(x); None for greedy decoding."""
    accepted: bool = False
    top: tuple[tuple[int, float], ...] = ()
    """The target's best tokens at this place with their probabilities, best first."""


class BonusChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the target's own token was chosen (only where a run is inspected)."""

    target_prob: float = 0.0
    """p of it, by the target alone."""
    residual_prob: float | None = None
    """Its probability in norm(max(p − q, 0)), which it was drawn from after a rejection;
    None: it was drawn from p, or chosen greedily."""
    draw: float | None = None
    """u of the draw; None for greedy decoding."""
    top: tuple[tuple[int, float], ...] = ()
    """The target's best tokens at this place with their probabilities, best first."""


class RowRound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row in one round."""

    row: int
    """Request index, in the order of the prompts."""
    place: int = 0
    """Row of the batch tensor; for slotspec the slot's number."""
    draft_token_ids: tuple[int, ...] = ()
    """The K_i drafted token ids."""
    accepted: int = 0
    """Length of the accepted prefix of the draft tokens, 0 … K_i."""
    bonus: int | None = None
    """The token that the target added after the accepted prefix; None where none was
    added (an end inside the accepted prefix). dsd takes the draft's first wrong token for
    it, and adds none when all are accepted."""
    committed: tuple[int, ...] = ()
    """Tokens that became final in this round, in order (cut at an end of the row)."""
    before: int = 0
    """Committed tokens of the row before the round (prompt included). Fewer than after the
    row's last round where the run went back: what was committed beyond them is undone."""
    content: int = 0
    """Content length c after the round: all committed tokens."""
    padding: int = 0
    """Padding p after the round."""
    delta: int = 0
    """δ = p' − p, columns by which the row's state moved."""
    kv_length: int = 0
    """Slots of the target's cache that hold committed tokens, after the round."""
    draft_kv_length: int = 0
    """The same for the draft's cache."""
    positions: tuple[int, ...] = ()
    """Position IDs fed to the target for [last committed, draft tokens …]."""
    fed: tuple[Span, ...] = ()
    """The row as the target read it: its cache, then the block (last committed token and
    draft tokens). The block's cells are spans as well: the last committed token is content,
    the draft tokens are stale until they are committed."""
    kept: tuple[Span, ...] = ()
    """The row after synchronisation. Its last committed token is included as content,
    though it has no K/V before the next round."""
    text: str = ""
    """Text that the committed tokens added."""
    finish_reason: str | None = None
    """eos, length, context, batch (stopped by the method) or error; None: still running."""
    error: str | None = None
    waited: int = 0
    """Rounds since the row last took part."""
    tests: tuple[AcceptTest, ...] = ()
    """Of the draft tokens, in order: the verified ones when sampling; all of them, those after
    the first rejection too, where the run is inspected."""
    choice: BonusChoice | None = None
    """How `bonus` was chosen, where the run is inspected."""
    forced: int = 0
    """How many of the draft tokens, from the first on, were put into the draft's mouth."""
    note: str = ""
    """What another program that recorded this has to say of the row."""
    by_text: bool = False
    """Whether the draft tokens are text (the row's own, or the pair's n-grams), and no model's."""


class PoolRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row that is in the pool but took no part in the round."""

    row: int
    content: int
    waited: int = 0
