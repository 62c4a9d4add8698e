"""The names that views paint with, and the one style sheet that colours them.

Each meaning has an ink (`accepted`) and a cell (`cell-accepted`: ink, ground and
attribute). Attributes differ from meaning to meaning, so that the screen can be
read without any colour.
"""

from __future__ import annotations

INKS = {
    "text": "color: $foreground;",
    "quiet": "color: $foreground 65%;",
    "dim": "color: $line-dim;",
    "faint": "color: $line-dim 75%;",
    "rule": "color: $line-rule;",
    "edge": "color: $line-dim;",
    "strong": "color: $line-strong; text-style: bold;",
    "title": "color: $line-strong;",
    "method": "color: $primary; text-style: bold;",
    "good": "color: $success;",
    "paused": "color: $warning; text-style: bold;",
    "parked": "color: $accent; text-style: bold;",
    "typed": "color: $background; background: $accent; text-style: bold;",
    "broken": "color: $meaning-diverged; text-style: bold;",
    "empty": "",
    "prompt": "color: $meaning-prompt; text-style: italic;",
    "committed": "color: $meaning-committed;",
    "accepted": "color: $meaning-accepted;",
    "bonus": "color: $meaning-bonus; text-style: bold;",
    "proposed": "color: $meaning-proposed; text-style: italic;",
    "rejected": "color: $meaning-rejected;",
    "struck": "color: $meaning-rejected; text-style: strike;",
    "pad": "color: $meaning-pad;",
    "stale": "color: $meaning-stale;",
    "ghost": "color: $meaning-ghost; text-style: underline;",
    "diverged": "color: $meaning-diverged; text-style: bold;",
    "realign": "color: $phase-realign;",
    "key": "color: $line-strong; text-style: bold;",
    "tab": "color: $line-dim;",
    "tab-current": "color: $line-strong; text-style: bold underline;",
}

_CELLS = {
    "prompt": "italic",
    "committed": "none",
    "accepted": "bold",
    "bonus": "bold reverse",
    "proposed": "italic",
    "rejected": "strike",
    "pad": "none",
    "stale": "dim",
    "ghost": "underline",
}

_PHASES = ("verify", "draft", "accept", "realign", "schedule", "prefill")

_PREFIX = "ink--"


def component(name: str) -> str:
    """The component class of a style name."""
    return _PREFIX + name


def _rules() -> dict[str, str]:
    rules = dict(INKS)
    rules["cell-empty"] = ""
    for name, attribute in _CELLS.items():
        ground = f"background: $meaning-{name}-cell;"
        rules[f"cell-{name}"] = f"color: $meaning-{name}; {ground} text-style: {attribute};"
        rules[f"cell-{name}-dim"] = f"color: $meaning-{name} 60%; {ground}"
    # A filled ground where the ink is the ground's own hue: the one cell that shouts.
    rules["cell-bonus"] = (
        "color: $meaning-bonus; background: $meaning-bonus-cell; text-style: bold underline;"
    )
    for name in _PHASES:
        rules[f"phase-{name}"] = f"color: $phase-{name};"
        for other in _PHASES:
            rules[f"phase-{name}-on-{other}"] = f"color: $phase-{name}; background: $phase-{other};"
    return rules


RULES = _rules()
COMPONENTS = {component(name) for name in RULES}


def style_sheet(widget: str) -> str:
    """The style sheet of a widget type that paints with these names."""
    return "\n".join(f"{widget} > .{component(name)} {{ {body} }}" for name, body in RULES.items())
