"""What crosses from the engine to the screen, the trace, the JSON and the benchmark.

A run is a stream of small frozen records: one `RunHeader`, a `RoundRecord` a
round, one `Summary` (or a `Failure` where the run broke, with what was kept).
A comparison is the streams of its lanes, one through the other, with the oracle's
answers beside them (`OracleRecord`) and a `TickRecord` wherever all lanes are level.
They hold plain Python values, import no torch, and are complete: whoever has the
records can draw every pane without the engine, a model or a tokenizer.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = "batchspec/trace/2"

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
    """How one draft token was judged (design.md §3, sampling)."""

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
    why: str = ""
    """Why the scheduler put the row where it is: grouped, fallback, joined, …"""
    waited: int = 0
    """Rounds since the row last took part."""
    tests: tuple[AcceptTest, ...] = ()
    """Of the draft tokens, in order: the judged ones when sampling; all of them, those after
    the first rejection too, where the run is inspected."""
    choice: BonusChoice | None = None
    """How `bonus` was chosen, where the run is inspected."""
    forced: int = 0
    """How many of the draft tokens, from the first on, were put into the draft's mouth."""
    by_text: bool = False
    """Whether the draft tokens are text (the row's own, or the pair's n-grams), and no model's."""


class PoolRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row that is in the pool but took no part in the round."""

    row: int
    content: int
    waited: int = 0


class Violation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An invariant that did not hold, in plain words."""

    invariant: Literal["I1", "I2", "I3", "I4", "I5"]
    row: int | None
    message: str
    since: int = 0
    """The round in which this row first broke this invariant."""


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds by phase."""

    prefill: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    accept: float = 0.0
    realign: float = 0.0
    schedule: float = 0.0

    @property
    def total(self) -> float:
        return float(sum(getattr(self, name) for name in self.__struct_fields__))

    def __add__(self, other: Phases) -> Phases:
        names = self.__struct_fields__
        return Phases(**{name: getattr(self, name) + getattr(other, name) for name in names})


class RoundRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="round"):
    """One round: draft → verify → accept → synchronise, for the rows chosen."""

    round: int
    """1, 2, 3, … within the run."""
    lane: int = 0
    rows: tuple[RowRound, ...] = ()
    """The rows that took part, by place."""
    length: int = 0
    """Rectangle length L after the round (for slots: the longest live row)."""
    length_before: int = 0
    """L when the round began, the block not counted."""
    draft_tokens: int = 0
    """K of this round, before the rows' own limits."""
    draft_reason: str = ""
    """Why this K, where it is chosen by `--draft-tokens auto`."""
    kind: Literal["batch", "grouped", "fallback", "slots"] = "batch"
    pool: tuple[PoolRow, ...] = ()
    queued: int = 0
    """Prompts not yet admitted."""
    admitted: tuple[int, ...] = ()
    """Rows that were prefilled at the start of this round."""
    left: tuple[int, ...] = ()
    """Rows that left the batch at the end of this round."""
    seconds: Phases = Phases()
    elapsed: float = 0.0
    """Decoding seconds since the run began, at the end of this round."""
    realign_bytes: int = 0
    """Bytes of K/V moved by realignment (read plus written)."""
    staged_bytes: int = 0
    """Bytes of K/V copied otherwise: to bring the rows of a group together, and back
    (exspec); of the last live row into the slot of one that ended (slotspec)."""
    checked: tuple[str, ...] = ()
    """Invariants that were checked after this round."""
    violations: tuple[Violation, ...] = ()
    fault: str = ""
    """The fault of the lab that was switched on in this round."""
    back: dict[int, int] = {}
    """Rows that went back before this round, and to how many committed tokens."""
    pieces: dict[int, str] = {}
    """Text of each token id that this record is the first to name."""

    @property
    def is_last(self) -> bool:
        """Whether every row has ended, so that only the summary can follow."""
        return not self.pool and not self.queued and all(row.finish_reason for row in self.rows)


class Prompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt as the models see it."""

    index: int
    ids: tuple[int, ...]
    text: str = ""
    category: str = ""
    error: str | None = None
    """Why this row cannot run; it then ends at once with finish reason `error`."""


class PairInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The two models, in words and numbers."""

    name: str = ""
    target: str = ""
    draft: str = ""
    tokenizer: str = ""
    target_layers: int = 0
    draft_layers: int = 0
    vocabulary: int = 0
    context: int = 0
    kv_bytes_per_token: int = 0
    """K and V of one token over all layers of the target, in bytes."""
    eos_ids: tuple[int, ...] = ()
    pad_id: int = 0
    thinking: bool = False
    """Whether prompts let the target think before it answers."""
    draft_device: str = ""
    """Where the draft runs, if elsewhere than the target."""


class RunHeader(msgspec.Struct, frozen=True, kw_only=True, tag="header"):
    """The first record of a run. Its defaults are written out: readers look for `schema`."""

    schema: str = SCHEMA
    lane: int = 0
    lanes: int = 1
    """How many run side by side; a lane that begins again has a further header."""
    fork: int | None = None
    """The round after which this lane left lane 0, whose rounds it repeats up to there."""
    method: str
    pair: PairInfo = PairInfo()
    settings: dict[str, object] = {}
    """The settings in force: device and dtype as resolved, never `auto`."""
    prompts: tuple[Prompt, ...] = ()
    pieces: dict[int, str] = {}
    versions: dict[str, str] = {}
    warning: str = ""
    """What makes the outputs other than the target's, in words (synthetic acceptance)."""


class RowSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one row: an entry of `rows` in `run --json`."""

    index: int
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    text: str
    finish_reason: str
    error: str | None
    rounds: int
    accepted: int
    drafted: int


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """`totals` of `run --json` (cli.md)."""

    output_tokens: int
    seconds: float
    tokens_per_second: float
    rounds: int
    row_rounds: int
    accepted_per_row_round: float
    seconds_by_phase: Phases
    realign_share: float
    realign_bytes: int
    grouped_rounds: int
    fallback_rounds: int
    peak_memory_bytes: int


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="summary"):
    """The last record of a run that came to its end or was stopped."""

    lane: int = 0
    rows: tuple[RowSummary, ...] = ()
    totals: Totals
    interrupted: bool = False


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="failure"):
    """The run broke. What was generated is in the records before this one."""

    lane: int = 0
    """−1: a comparison as a whole, all lanes with it."""
    message: str
    round: int = 0
    log: str = ""
    """Where the traceback was written."""


class OracleRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of the oracle's answer to one prompt: what it has said since the last one."""

    row: int
    first: int = 0
    """Place of the first of these tokens in the answer."""
    output_ids: tuple[int, ...] = ()
    gaps: tuple[float, ...] = ()
    """For each of them, the distance between the two best logits."""
    finish_reason: str | None = None
    """How the answer ended; None: there is more to come."""
    error: str | None = None


class OracleRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="oracle"):
    """What the oracle has found out since its last record, beside the lanes it judges."""

    rows: tuple[OracleRow, ...] = ()
    tolerance: float | None = None
    """Distance of two logits that rounding explains, once it is measured."""
    name: str = ""
    """Whose answers these are, where not the oracle's: those of another recording."""
    pieces: dict[int, str] = {}
    """Text of each token id that this record is the first to name."""


class TickRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tick"):
    """The end of a tick of a comparison: every lane that runs has gone at least one round."""

    tick: int
    rounds: dict[int, int] = {}
    """Rounds that each lane has done by now."""
    pace: str = "round"
    """What the lanes are kept level in: round, tokens or time."""


class ChangeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="change"):
    """From the next round on the lane runs otherwise; its rows keep what they committed."""

    lane: int = 0
    round: int = 0
    """Rounds that the lane had done by then."""
    what: str = ""
    """In words: "K = 3"."""
    method: str = ""
    settings: dict[str, object] = {}
    """All that are in force from now on, as in the header; empty: as they were."""
    held: bool = False
    """Whether the run holds here by itself, and `what` says why: memory ran out."""
    prompts: tuple[Prompt, ...] = ()
    """Prompts that joined the queue."""
    pieces: dict[int, str] = {}


LaneRecord = RunHeader | RoundRecord | ChangeRecord | Summary | Failure
"""A record of one run."""

Record = LaneRecord | OracleRecord | TickRecord
"""Any record of the stream."""


class Tally:
    """Adds up the rounds of one lane as they come, and keeps none of them."""

    def __init__(self) -> None:
        self.rounds = 0
        self._phases = Phases()
        self._committed = self._accepted = self._row_rounds = self._moved = 0
        self._kinds = {"grouped": 0, "fallback": 0}

    def add(self, record: RoundRecord) -> None:
        self.rounds += 1
        self._phases = self._phases + record.seconds
        self._moved += record.realign_bytes
        self._row_rounds += len(record.rows)
        self._accepted += sum(row.accepted for row in record.rows)
        self._committed += sum(len(row.committed) for row in record.rows)
        if record.kind in self._kinds:
            self._kinds[record.kind] += 1

    def totals(self, *, peak_memory_bytes: int = 0, output_tokens: int | None = None) -> Totals:
        """What they add up to. `output_tokens` defaults to the committed tokens."""
        seconds, phases = self._phases.total, self._phases
        tokens = self._committed if output_tokens is None else output_tokens
        row_rounds = self._row_rounds
        return Totals(
            output_tokens=tokens,
            seconds=seconds,
            tokens_per_second=tokens / seconds if seconds else 0.0,
            rounds=self.rounds,
            row_rounds=row_rounds,
            accepted_per_row_round=self._accepted / row_rounds if row_rounds else 0.0,
            seconds_by_phase=phases,
            realign_share=phases.realign / seconds if seconds else 0.0,
            realign_bytes=self._moved,
            grouped_rounds=self._kinds["grouped"],
            fallback_rounds=self._kinds["fallback"],
            peak_memory_bytes=peak_memory_bytes,
        )


def totals_of(
    rounds: list[RoundRecord], *, peak_memory_bytes: int = 0, output_tokens: int | None = None
) -> Totals:
    """Add up the rounds of one lane. `output_tokens` defaults to the committed tokens."""
    tally = Tally()
    for record in rounds:
        tally.add(record)
    return tally.totals(peak_memory_bytes=peak_memory_bytes, output_tokens=output_tokens)
