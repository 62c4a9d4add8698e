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

from engine.records.row import PoolRow, RowRound
from engine.records.violation import Violation

SCHEMA = "batchspec/trace/3"


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


class DraftChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a round has its K (`--draft-tokens auto`)."""

    reason: Literal["", "measuring", "trial", "fastest"] = ""
    paces: dict[int, float] = {}
    """By K, tokens per row and second of its latest rounds."""
    note: str = ""
    """What another program, or an older version, has to say of it."""


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
    draft_choice: DraftChoice | None = None
    """Why this K, where it is chosen by `--draft-tokens auto`."""
    kind: Literal["batch", "grouped", "fallback", "slots"] = "batch"
    pool: tuple[PoolRow, ...] = ()
    starving: int | None = None
    """The row that went first since it had waited too long (exspec)."""
    largest_group: int = 0
    """Rows of the largest group of one length, among those in the pool (exspec)."""
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
    """`totals` of `run --json`."""

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


ChangeKind = Literal["settings", "fork", "prompts", "back", "forced", "memory"]
"""What was changed; `memory`: none was left for the round, and the run waits."""


class ChangeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="change"):
    """From the next round on the lane runs otherwise; its rows keep what they committed."""

    lane: int = 0
    round: int = 0
    """Rounds that the lane had done by then."""
    kind: ChangeKind = "settings"
    method: str = ""
    settings: dict[str, object] = {}
    """All that are in force from now on, as in the header; empty: as they were."""
    changed: tuple[str, ...] = ()
    """Names of the settings that differ from those before (`settings`, `fork`)."""
    prompts: tuple[Prompt, ...] = ()
    """Prompts that joined the queue (`prompts`)."""
    back: int = 0
    """The round after which the rows stand again (`back`)."""
    rows: tuple[int, ...] = ()
    """The rows that went back (`back`), or that are to draft `token_ids` (`forced`)."""
    token_ids: tuple[int, ...] = ()
    """What a row's draft is to say next (`forced`)."""
    lower: dict[str, int] = {}
    """Settings that could be lowered, and their present values (`memory`)."""
    note: str = ""
    """What another program, or an older version, has to say of it."""
    pieces: dict[int, str] = {}

    @property
    def held(self) -> bool:
        """Whether the run holds here by itself."""
        return self.kind == "memory"


LaneRecord = RunHeader | RoundRecord | ChangeRecord | Summary | Failure
"""A record of one run."""

Record = LaneRecord | OracleRecord | TickRecord
"""Any record of the stream."""
