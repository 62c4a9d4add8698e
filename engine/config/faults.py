"""The fault lab: eqspec with one thing done wrong, really done wrong, in the tensors.

This file says in words what each fault is; `engine.methods.faulty` is the wrong behaviour.
The invariants do not know of it: they find it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """A public report of a fault of this kind."""

    project: str
    number: int
    what: str

    def __str__(self) -> str:
        return f"{self.project} {self.number}: {self.what}"


@dataclass(frozen=True)
class Fault:
    """One thing that is done wrong.

    Attributes:
        name: value of `Settings.fault`.
        title: a few words.
        text: a paragraph of explanation.
        breaks: the invariants that it breaks, the one that shows it first in front.
        reports: where others met it.
    """

    name: str
    title: str
    text: str
    breaks: tuple[str, ...]
    reports: tuple[Report, ...] = ()


_POSITIONS = "positions not rebuilt per row"

_ALL = (
    Fault(
        name="positions-not-rebuilt",
        title="Positions not rebuilt",
        text=(
            "Position IDs are the rectangle's column numbers, the same for every row, as a "
            "library fills them in when it is given none. A row without padding is right; any "
            "other starts at its padding's width instead of 0, and jumps by δ whenever it is "
            "padded again, while the K/V it has keep the old positions. The text stays fluent "
            "for a while, and is another one."
        ),
        breaks=("I2", "I3"),
        reports=(
            Report("unsloth", 3699, _POSITIONS),
            Report("unsloth", 4078, _POSITIONS),
            Report("nnsight", 673, _POSITIONS),
            Report("reasoning-from-scratch", 33, _POSITIONS),
        ),
    ),
    Fault(
        name="kv-not-realigned",
        title="K/V not realigned",
        text=(
            "Tokens, mask and positions move by δ when the batch is padded again; the K/V stay "
            "in their old columns. From the first ragged round on a row reads its cache δ "
            "columns off: the wrong token's K/V in each place, and at one end a slot that is "
            "padding or was never written. Rows with δ = 0 notice nothing, so a batch of equal "
            "rows passes every test."
        ),
        breaks=("I3",),
        reports=(
            Report(
                "vllm",
                26498,
                "stale slot mapping after padding: acceptance falls, text looks right",
            ),
        ),
    ),
    Fault(
        name="padding-not-masked",
        title="The mask does not cover the padding",
        text=(
            "The mask is causal and no more: a row's queries read the padding in front of its "
            "content as if it were text. Padding cells hold K/V of a meaningless token, and the "
            "softmax gives them weight. The longest row has no padding and is right; the "
            "shorter a row, the worse it gets, and who its neighbours are decides what it says."
        ),
        breaks=("I4",),
    ),
    Fault(
        name="rejected-kv-kept",
        title="Rejected K/V kept",
        text=(
            "The cache is not cut back after verification. The rejected draft tokens' K/V stay "
            "where they were written, count as the row's own, and each later query attends to "
            "words that were never said. Every row grows by K + 1 slots a round, so nothing is "
            "ever ragged and nothing has to be moved: it even looks faster."
        ),
        breaks=("I3", "I4"),
        reports=(
            Report("mlx-vlm", 1155, "offsets advance by K + 1 for all rows"),
            Report("mlx-vlm", 1962, "rejected KV zeroed instead of masked"),
        ),
    ),
    Fault(
        name="bonus-from-draft",
        title="The bonus is the draft's",
        text=(
            "After the accepted prefix comes the draft token that was just rejected, not the token "
            "that the target chose in its place. One wrong word a round is enough: the target "
            "then goes on consistently from a text that it would not have written."
        ),
        breaks=("I5",),
    ),
    Fault(
        name="pad-by-token-id",
        title="Padding recognised by token id",
        text=(
            "The mask is made by asking which tokens are the pad id, instead of how long each "
            "row is. Where pad and eos are one id, every end-of-turn marker of a chat prompt is "
            "taken for padding and becomes invisible, and so is the pad id where a model writes "
            "it itself. A model that never meets the id inside its text shows nothing."
        ),
        breaks=("I4",),
        reports=(Report("transformers", 25790, "pad recognised by token id, pad = eos"),),
    ),
    Fault(
        name="finished-rows-kept",
        title="Finished rows not removed",
        text=(
            "A row that has said its eos stays in the batch and goes on to its token budget: "
            "words behind the end, and a batch that pads, verifies and realigns for a row that "
            "has nothing more to say."
        ),
        breaks=("I5",),
    ),
    Fault(
        name="eos-ignored",
        title="An eos inside a block is ignored",
        text=(
            "Only the newest token is asked whether it ends the row. That is right for one "
            "token a step; with speculation an eos can be accepted in the middle of a block, "
            "and the row runs on behind it. It takes luck to see: the better the draft, the "
            "more often the eos is not the last of its block."
        ),
        breaks=("I5",),
        reports=(
            Report("transformers", 47912, "eos inside a block ignored"),
            Report("sglang", 33758, "eos inside a block ignored"),
        ),
    ),
)

FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ALL}
"""Every fault by its name, in the order in which they are shown."""
