"""Ordinary decoding through the same loop: K = 0, so a round is one token of the target's."""

from __future__ import annotations

from engine.methods import slotspec
from engine.methods.eqspec import Rectangle
from engine.rounds.method import Method
from engine.rounds.schedule import Continuous

METHOD = Method(
    layout=Rectangle,
    drafter=None,
    # only in slots does a row's content keep its columns, and so its shapes
    strict=Method(layout=slotspec.Slots, schedule=Continuous, drafter=None),
)
