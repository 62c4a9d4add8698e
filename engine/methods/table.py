"""The methods, side by side: each is a choice at every seam of the round loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.config.errors import UserError
from engine.methods.baseline_rows import EndlessRow, PadSeekingRow
from engine.methods.bsp import Holes, HolesDraft
from engine.methods.dsd import FirstWrong, GenerateDraft, PilingPadding
from engine.methods.eqspec import Rectangle
from engine.methods.exspec import Ragged
from engine.methods.exspec_schedule import Pool
from engine.methods.faulty import SEAMS
from engine.methods.slotspec import Slots
from engine.models.causal_lm import LanguageModel
from engine.rounds.acceptance import Lossless, Shortest
from engine.rounds.draft_model import ModelDraft
from engine.rounds.layout import Layout
from engine.rounds.schedule import Continuous, FixedBatches, Schedule
from engine.rounds.sequence import Sequence


@dataclass(frozen=True)
class Plan:
    """The sizes that a layout is made for.

    Attributes:
        batch_size: B.
        window: W.
        room: columns that a round may need beyond the committed ones, K + 1.
        columns: the longest that any row of the run may become.
        strict: whether every forward of the target has one fixed shape.
        graphs: whether forwards are recorded and replayed, where the layout can.
    """

    batch_size: int
    window: int
    room: int
    columns: int
    strict: bool = False
    graphs: bool = False


MakeLayout = Callable[[LanguageModel, LanguageModel | None, Plan], Layout]


@dataclass(frozen=True)
class Method:
    """What a method chooses.

    Attributes:
        schedule: who is in the batch.
        layout: how the state lies.
        draft: how a draft model drafts.
        accept: what is kept.
        row: what ends a row, and what its output is.
        drafts: whether anything is drafted (else K = 0).
    """

    layout: MakeLayout
    schedule: type[Schedule]
    draft: type[ModelDraft] = ModelDraft
    accept: type[Lossless] = Lossless
    row: type[Sequence] = Sequence
    drafts: bool = True


def rectangle(target: LanguageModel, draft: LanguageModel | None, plan: Plan) -> Layout:
    """A left-padded rectangle of at most B rows."""
    return Rectangle(target, draft, room=plan.room, strict=plan.strict)


def ragged(target: LanguageModel, draft: LanguageModel | None, plan: Plan) -> Layout:
    """W rows, each at its own length, that meet in a rectangle when they are chosen."""
    return Ragged(
        target,
        draft,
        room=plan.room,
        homes=plan.window,
        columns=plan.columns,
        strict=plan.strict,
    )


def slots(target: LanguageModel, draft: LanguageModel | None, plan: Plan) -> Layout:
    """B slots, each as long as the longest row of the run may become."""
    return Slots(
        target,
        draft,
        room=plan.room,
        slots=plan.batch_size,
        columns=plan.columns,
        strict=plan.strict,
        graphs=plan.graphs,
    )


def holes(target: LanguageModel, draft: LanguageModel | None, plan: Plan) -> Layout:
    """Right-padded prompts; rejected tokens stay as holes behind a mask."""
    if draft is None and plan.room > 1:
        raise UserError("bsp needs a draft model")
    return Holes(target, draft, room=plan.room)


def piling(target: LanguageModel, draft: LanguageModel | None, plan: Plan) -> Layout:
    """Left padding that is added in each round and never removed."""
    if draft is None:
        raise UserError("dsd needs a draft model, and --draft-tokens of at least 1")
    return PilingPadding(target, draft, room=plan.room)


METHODS: dict[str, Method] = {
    "autoregressive": Method(layout=rectangle, schedule=FixedBatches, drafts=False),
    "eqspec": Method(layout=rectangle, schedule=FixedBatches),
    "exspec": Method(layout=ragged, schedule=Pool),
    "rollback": Method(layout=rectangle, schedule=FixedBatches, accept=Shortest),
    "slotspec": Method(layout=slots, schedule=Continuous),
    "bsp": Method(layout=holes, schedule=FixedBatches, draft=HolesDraft, row=EndlessRow),
    "dsd": Method(
        layout=piling,
        schedule=FixedBatches,
        draft=GenerateDraft,
        accept=FirstWrong,
        row=PadSeekingRow,
    ),
}


def method_named(name: str, *, strict: bool = False, fault: str = "") -> Method:
    """Look a method up.

    Under strict, `autoregressive` decodes in slots, since only there a row's content keeps
    its columns (design.md, numerics): the same shapes as slotspec's, with K = 0.
    A fault (`engine.config.faults`) replaces one choice of eqspec.

    Raises:
        UserError: there is no such method.
    """
    try:
        method = METHODS[name]
    except KeyError:
        raise UserError(f"unknown method '{name}'; choose one of {', '.join(METHODS)}") from None
    if strict and name == "autoregressive":
        return replace(method, layout=slots, schedule=Continuous)
    if fault:
        return replace(method, **SEAMS[fault])
    return method
