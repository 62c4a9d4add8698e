"""The names that views paint with, and how a theme's colours become their styles.

Each meaning has an ink (`accepted`) and a cell (`cell-accepted`: ink, ground and
attribute). Attributes differ from meaning to meaning, so that the screen can be
read without any colour. The styles are made from the theme's variables when they
are first needed: a pane costs the style sheet nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rich.style import Style
from textual.color import Color


class Ink(NamedTuple):
    """Which variables and attributes a name stands for."""

    ink: str = "foreground"
    ground: str = "background"
    attributes: str = ""
    share: float = 1.0
    """How much of the ink there is, the rest is ground."""


_PHASES = ("verify", "draft", "accept", "realign", "schedule", "prefill")


def _inks() -> dict[str, Ink]:
    inks = {
        "text": Ink(),
        "quiet": Ink(share=0.65),
        "dim": Ink("line-dim"),
        "faint": Ink("line-dim", share=0.75),
        "rule": Ink("line-rule"),
        "edge": Ink("line-dim"),
        "strong": Ink("line-strong", attributes="bold"),
        "title": Ink("line-strong"),
        "method": Ink("primary", attributes="bold"),
        "good": Ink("success"),
        "paused": Ink("warning", attributes="bold"),
        "parked": Ink("accent", attributes="bold"),
        "typed": Ink("background", "accent", "bold"),
        "broken": Ink("meaning-diverged", attributes="bold"),
        "empty": Ink(),
        "cell-empty": Ink(),
        "prompt": Ink("meaning-prompt", attributes="italic"),
        "committed": Ink("meaning-committed"),
        "accepted": Ink("meaning-accepted"),
        "bonus": Ink("meaning-bonus", attributes="bold"),
        "drafted": Ink("meaning-drafted", attributes="italic"),
        "rejected": Ink("meaning-rejected"),
        "struck": Ink("meaning-rejected", attributes="strike"),
        "pad": Ink("meaning-pad"),
        "stale": Ink("meaning-stale"),
        "ghost": Ink("meaning-ghost", attributes="underline"),
        "diverged": Ink("meaning-diverged", attributes="bold"),
        "alarm": Ink("background", "meaning-diverged", "bold"),
        "wrong": Ink("meaning-diverged", share=0.75),
        "due": Ink("meaning-accepted", attributes="underline"),
        "realign": Ink("phase-realign"),
        "key": Ink("line-strong", attributes="bold"),
        "tab": Ink("line-dim"),
        "tab-current": Ink("line-strong", attributes="bold underline"),
    }
    cells = {
        "prompt": "italic",
        "committed": "",
        "accepted": "bold",
        "bonus": "bold underline",
        "drafted": "italic",
        "rejected": "strike",
        "pad": "",
        "stale": "dim",
        "ghost": "underline",
        "diverged": "bold reverse",
    }
    for name, attributes in cells.items():
        ink, ground = f"meaning-{name}", f"meaning-{name}-cell"
        inks[f"cell-{name}"] = Ink(ink, ground, attributes)
        inks[f"cell-{name}-dim"] = Ink(ink, ground, share=0.6)
    for name in _PHASES:
        inks[f"phase-{name}"] = Ink(f"phase-{name}")
        for other in _PHASES:
            inks[f"phase-{name}-on-{other}"] = Ink(f"phase-{name}", f"phase-{other}")
    return inks


INKS = _inks()


class Palette:
    """The styles of one theme, by name."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._styles: dict[str, Style] = {}

    def __getitem__(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            style = self._styles[name] = self._make(INKS[name])
        return style

    def _colour(self, variable: str) -> Color:
        return Color.parse(self._variables.get(variable, "ansi_default"))

    def _make(self, ink: Ink) -> Style:
        colour, ground = self._colour(ink.ink), self._colour(ink.ground)
        attributes = ink.attributes
        if ink.share < 1.0:
            if colour.ansi is None and ground.ansi is None:
                colour = ground.blend(colour, ink.share)
            else:
                attributes += " dim"
        base = Style(color=colour.rich_color, bgcolor=ground.rich_color)
        return base + Style.parse(attributes) if attributes else base


_latest: tuple[Mapping[str, str], Palette] | None = None


def palette_of(variables: Mapping[str, str]) -> Palette:
    """The palette of these theme variables; panes of one app share it."""
    global _latest
    if _latest is None or _latest[0] is not variables:
        _latest = (variables, Palette(variables))
    return _latest[1]
