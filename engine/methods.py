"""The methods, side by side: each is a choice at every seam of the round loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.accept import Lossless, Shortest
from engine.baselines.bsp import Holes, HolesDraft
from engine.baselines.dsd import FirstWrong, GenerateDraft, PilingPadding
from engine.baselines.rows import EndlessRow, PadSeekingRow
from engine.draft import ModelDraft
from engine.errors import UserError
from engine.layout.base import Layout
from engine.layout.rectangle import Rectangle
from engine.layout.slots import Slots
from engine.model import LanguageModel
from engine.schedule import Continuous, FixedBatches, Schedule
from engine.sequence import Sequence
from engine.settings import Settings

MakeLayout = Callable[[LanguageModel, LanguageModel | None, list[Sequence], Settings, int], Layout]


@dataclass(frozen=True)
class Method:
    """What a method chooses.

    Attributes:
        schedule: who is in the batch.
        layout: how the state lies.
        draft: how a draft model proposes.
        accept: what is kept.
        row: what ends a row, and what its output is.
        drafts: whether anything is proposed (else K = 0).
    """

    layout: MakeLayout
    schedule: type[Schedule]
    draft: type[ModelDraft] = ModelDraft
    accept: type[Lossless] = Lossless
    row: type[Sequence] = Sequence
    drafts: bool = True


def rectangle(
    target: LanguageModel,
    draft: LanguageModel | None,
    rows: list[Sequence],
    settings: Settings,
    room: int,
) -> Layout:
    """A left-padded rectangle of at most B rows."""
    return Rectangle(target, draft, room=room)


def slots(
    target: LanguageModel,
    draft: LanguageModel | None,
    rows: list[Sequence],
    settings: Settings,
    room: int,
) -> Layout:
    """B slots, each as long as the longest row of the run may become."""
    longest = max((row.limit for row in rows), default=1)
    return Slots(target, draft, room=room, slots=settings.batch_size, columns=longest)


def holes(
    target: LanguageModel,
    draft: LanguageModel | None,
    rows: list[Sequence],
    settings: Settings,
    room: int,
) -> Layout:
    """Right-padded prompts; rejected tokens stay as holes behind a mask."""
    return Holes(target, draft, room=room)


def piling(
    target: LanguageModel,
    draft: LanguageModel | None,
    rows: list[Sequence],
    settings: Settings,
    room: int,
) -> Layout:
    """Left padding that is added in each round and never removed."""
    if draft is None:
        raise UserError("dsd needs a draft model, and --draft-tokens of at least 1")
    return PilingPadding(target, draft, room=room)


METHODS: dict[str, Method] = {
    "autoregressive": Method(layout=rectangle, schedule=FixedBatches, drafts=False),
    "eqspec": Method(layout=rectangle, schedule=FixedBatches),
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


def method_named(name: str) -> Method:
    """Look a method up.

    Raises:
        UserError: the method is not built.
    """
    try:
        return METHODS[name]
    except KeyError:
        raise UserError(
            f"method '{name}' cannot run yet; choose one of {', '.join(METHODS)}"
        ) from None
