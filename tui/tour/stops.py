"""The stops of the tour: which run, how far, where to look, and what is said there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from engine.config.settings import Sampling, Settings
from engine.text.prompts import PromptEntry
from tui.tour import finds, words
from tui.tour.finds import Find
from tui.tour.scene import Scene
from tui.view.lines import Line
from tui.view.state.cursor import Phase
from tui.view.state.frame import CellMode

PROMPTS = tuple(
    PromptEntry(text=text)
    for text in (
        "What is the capital of France, and what is it known for?",
        "Explain in two sentences how a loaf of bread is baked.",
        "Write the beginning of a story about a small house by the sea, and the old woman "
        "who lives there with her cat.",
        "Give me three tips for a good night's sleep.",
        "Why is the sky blue?",
        "Where does the sun rise?",
        "What is the opposite of cold?",
        "What makes a good friend?",
        "How does a candle burn?",
        "Who wrote Hamlet, and when?",
        "How does a clock work?",
        "Why is the sea salty?",
    )
)
"""The first batch is of different lengths, and so padded from the start; the others are nearly
of one length, so that groups form soon."""

BATCH, DRAFT_TOKENS, WINDOW, BUDGET = 4, 5, 12, 48


@dataclass(frozen=True)
class Moment:
    """One thing to be seen at a stop."""

    lead: str
    """What is to be known, without figures."""
    find: Find
    words: Callable[[Scene], Line]
    look: str
    """Where to look."""
    otherwise: str = ""
    """What is said in place of the words where the run does not show it."""
    mode: CellMode = CellMode.TOKEN
    pane: str = "texts"
    """The lower pane that a small screen shows."""


@dataclass(frozen=True)
class Stop:
    """A part of the story, shown on one run."""

    name: str
    title: str
    method: str
    moments: tuple[Moment, ...]
    rounds: int = 13
    """Rounds that are made before anything is looked for."""
    most: int = 40
    """Rounds that are made at most, where it has not been found by then."""

    def settings(self, base: Settings) -> Settings:
        """The run's settings: the tour's own, on the user's device."""
        return msgspec.structs.replace(
            base,
            method=self.method,
            batch_size=BATCH,
            draft_tokens=DRAFT_TOKENS,
            window=WINDOW,
            max_new_tokens=BUDGET,
            sampling=Sampling(),
            strict=False,
            audit=False,
            fault="",
        )


STOPS = (
    Stop(
        "plain",
        "one token a step",
        "autoregressive",
        (
            Moment(
                "Prompts are decoded together, as one tensor: a row each, a token a column. "
                "Most of a step's time goes into reading the weights; a row gains one token.",
                finds.at_round(6),
                words.one_token,
                "★ is the new token of a row. · is padding: the prompts differ in length.",
            ),
        ),
        rounds=6,
    ),
    Stop(
        "speculation",
        "draft and verify",
        "eqspec",
        (
            Moment(
                "A small draft model guesses what comes next. It is cheap, and often right.",
                finds.verified(Phase.DRAFT),
                words.drafted,
                "? at the right edge of each row: guesses that the target has not verified yet.",
            ),
            Moment(
                "The target reads all the guesses at once, in a single step, and says at each "
                "place what it would have said. From the first wrong guess on, none counts.",
                finds.verified(Phase.VERIFY),
                words.verified,
                "✓ accepted, ✗ rejected.",
            ),
            Moment(
                "The accepted guesses are kept, and the target's own choice comes on top: the "
                "bonus. The target alone would have written the same, up to rounding.",
                finds.verified(Phase.ACCEPT),
                words.landed,
                "★ the bonus, in the place of the first wrong guess.",
            ),
        ),
    ),
    Stop(
        "raggedness",
        "the ragged tensor",
        "eqspec",
        (
            Moment(
                "But each row accepts a different number. Their ends no longer agree, and a "
                "tensor has one edge only: this is the ragged tensor problem. Positions, mask "
                "and cache of every row have to be put in order before the next round.",
                finds.most_ragged,
                words.ragged,
                "where ✓ and ★ end in each row; below, how often a row accepts how many.",
                pane="method",
            ),
        ),
    ),
    Stop(
        "bsp",
        "BSP: holes",
        "bsp",
        (
            Moment(
                "BSP leaves the rejected tokens where they are, behind a mask.",
                finds.first_hole,
                words.hole,
                "~ in the middle of the row.",
                otherwise="No guess has been rejected in this run.",
            ),
            Moment(
                "The mask hides the holes, but the positions are left to the framework, which "
                "counts them: what comes after a hole seems further away than it is.",
                finds.first_breach("I2"),
                words.positions,
                "the position IDs run on through the ~ cells. v shows the tokens again.",
                otherwise="No position has been skipped in this run.",
                mode=CellMode.POSITION,
                pane="invariants",
            ),
            Moment(
                "Nothing crashes, and no error is shown. Only the text is wrong, and stays so.",
                finds.first_rubbish,
                words.rubbish,
                "the texts. On the live engine b shows them beside the correct methods.",
                otherwise="In this run every token is still right, by luck.",
            ),
        ),
    ),
    Stop(
        "dsd",
        "DSD: padding piles up",
        "dsd",
        (
            Moment(
                "DSD pads the shorter rows on the left in each round, and never takes padding "
                "away again; nor does it tell the target which cells are padding.",
                finds.piled_up,
                words.piling,
                "· on the left of every row, and the invariants that are broken.",
                otherwise="In this run no padding has piled up.",
                pane="invariants",
            ),
            Moment(
                "And as the bonus it takes the draft's first wrong guess: the one token of "
                "which it is known that the target would not have said it.",
                finds.wrong_bonus,
                words.false_bonus,
                "★ in the row.",
                otherwise="In this run the draft's guess and the target's choice agree.",
                pane="invariants",
            ),
            Moment(
                "Here too nothing crashes, and by the usual figures it does well: nonsense is "
                "easy to guess.",
                finds.first_rubbish,
                words.easy_rubbish,
                "the texts, and “accepted” at the top.",
                otherwise="In this run every token is still right, by luck.",
            ),
        ),
    ),
    Stop(
        "eqspec",
        "EQSPEC: realign by δ",
        "eqspec",
        (
            Moment(
                "EQSPEC pads the batch again after each round: a row moves by δ = L′ − L − a, "
                "where a is what it gained; tokens, mask, positions and K/V move together.",
                finds.realigned,
                words.shifts,
                "the rows slide; the column δ; all invariants hold.",
                otherwise="In this run no row had to move.",
                pane="invariants",
            ),
        ),
    ),
    Stop(
        "cost",
        "what it costs",
        "eqspec",
        (
            Moment(
                "Being right has its price: K/V of every layer are copied. It grows with the "
                "rows, the layers and the length of the texts.",
                finds.at_round(16),
                words.price,
                "the cost of each round: realign, on top of verify and draft.",
                pane="cost",
            ),
        ),
        rounds=16,
    ),
    Stop(
        "exspec",
        "EXSPEC: groups",
        "exspec",
        (
            Moment(
                "EXSPEC keeps a pool of rows unpadded, and lets rows of the same length run "
                "together: they are a rectangle by themselves.",
                finds.grouped,
                words.group,
                "the pool by length: the marked rows are this round's batch.",
                otherwise="In this run no two rows of one length have met.",
                pane="method",
            ),
            Moment(
                "Where there is no group, it falls back: the nearest rows are padded, as EQSPEC "
                "would. The more rows to choose from, the rarer that is.",
                finds.fallback,
                words.fell_back,
                "□ a fallback, ■ a group, round by round.",
                otherwise="In this run every round has found a group.",
                pane="method",
            ),
        ),
        rounds=16,
    ),
    Stop(
        "slots",
        "SLOTSPEC: nothing moves",
        "slotspec",
        (
            Moment(
                "Or nothing moves at all. Each row has a slot and begins at its left edge; "
                "one that gains more writes further right. Rejected K/V stay behind a mask until "
                "the next round overwrites them.",
                finds.stale_tail,
                words.slots,
                "~ behind the ends of the rows; there is no δ.",
                otherwise="In this run nothing has been rejected.",
                pane="method",
            ),
            Moment(
                "And since nobody shares an edge, a row can leave when it has ended, and the "
                "next one take its slot: no waiting for the slowest.",
                finds.joined,
                words.joins,
                "the new row in its slot. That was the tour: S has all stops.",
                otherwise="In this run no row has ended yet.",
                pane="method",
            ),
        ),
        rounds=20,
    ),
)
