"""Every key of the app, in one place: bindings, help and footer are made from this."""

from __future__ import annotations

from typing import NamedTuple

from textual.binding import Binding


class Key(NamedTuple):
    """One key and what it does."""

    keys: str
    action: str
    label: str
    """In the footer, short."""
    help: str
    """In the help, a sentence."""
    group: str
    where: str = "main"
    """Which part of the app binds it: app, main, compare."""
    display: str = ""
    """How the key is written; empty: from its name."""
    counted: bool = False
    """Whether digits typed before it multiply it."""

    @property
    def id(self) -> str:
        return self.action.replace("(", "-").rstrip(")").replace("'", "").replace(", ", "-")

    @property
    def shown(self) -> str:
        return self.display or " ".join(_name(key) for key in self.keys.split(","))


_NAMES = {
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "question_mark": "?",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "ctrl+q": "^q",
    "ctrl+z": "^z",
    "ctrl+p": "^p",
}


def _name(key: str) -> str:
    return _NAMES.get(key, key)


KEYS: tuple[Key, ...] = (
    Key("space", "toggle_run", "run", "Run, or pause before the next round", "Time"),
    Key("n", "next_round", "next", "Next round; at the live end the engine makes one more",
        "Time", counted=True),
    Key("p", "previous_round", "prev", "Previous round; the engine goes on undisturbed",
        "Time", counted=True),
    Key("N,full_stop", "next_phase", "phase", "Next phase: draft, verify, accept, realign",
        "Time", display=".", counted=True),
    Key("P,comma", "previous_phase", "phase back", "Previous phase", "Time", display=",",
        counted=True),
    Key("home", "first", "first", "First round", "Time"),
    Key("end", "last", "live", "Last round, and follow the live end again", "Time"),
    Key("g", "jump", "go to", "Go to a round: type its number first, as in 42g", "Time",
        display="42 g", counted=True),
    Key("i", "next_break(1)", "broken", "To the round in which an invariant breaks next", "Time",
        counted=True),
    Key("I", "next_break(-1)", "broken before", "To the one before", "Time", counted=True),
    Key("less_than_sign", "slower", "speed", "Slower: fewer rounds a second", "Time"),
    Key("greater_than_sign", "faster", "speed", "Faster, up to as fast as it goes", "Time"),
    Key("B", "breakpoints", "breaks", "Breakpoints: where the run is to be held", "Time",
        where="app"),
    Key("v", "cell_mode", "cells", "What the cells show: tokens, positions, KV slots, mask",
        "View"),
    Key("plus,equals_sign", "zoom(1)", "wider", "Wider cells", "View", display="+"),
    Key("minus", "zoom(-1)", "narrower", "Narrower cells, more columns", "View"),
    Key("left,h", "pan(-1)", "left", "Earlier columns of the tensor", "View", display="← h",
        counted=True),
    Key("right,l", "pan(1)", "right", "Later columns", "View", display="→ l", counted=True),
    Key("up,k", "select(-1)", "row up", "Select the row above", "View", display="↑ k",
        counted=True),
    Key("down,j", "select(1)", "row down", "Select the row below", "View", display="↓ j",
        counted=True),
    Key("enter", "inspect", "inspect", "Inspect the row: how its tokens were verified, how it lies",
        "View", display="⏎"),
    Key("slash", "search", "search", "Search the rows for a text, or for token ids: #12 #7", "View",
        display="/"),
    Key("ctrl+n", "next_hit(1)", "next hit", "Next hit of the search", "View", display="^n",
        counted=True),
    Key("ctrl+u", "next_hit(-1)", "hit before", "The hit before", "View", display="^u",
        counted=True),
    Key("y", "copy", "copy", "Copy the row's text, its token ids, or the command line", "View"),
    Key("tab", "cycle_pane(1)", "pane", "On a small screen: the next of the lower panes",
        "View"),
    Key("shift+tab", "cycle_pane(-1)", "pane back", "The pane before", "View",
        display="⇧tab"),
    Key("b", "compare", "compare", "The broken baselines beside the correct methods, and back",
        "Run"),
    Key("F", "fork", "fork", "Fork: a second lane from this round on, under other settings", "Run"),
    Key("f", "faults", "faults", "The fault lab: eqspec with one thing done wrong", "Run"),
    Key("s", "next_pace", "in step", "In a comparison: lanes in step by rounds, tokens or time",
        "Run", where="compare"),
    Key("d", "next_divergence(1)", "diverge", "In a comparison: where the lane's next row diverges",
        "Time", where="compare", counted=True),
    Key("D", "next_divergence(-1)", "diverge back", "Where the row before diverged", "Time",
        where="compare", counted=True),
    Key("m", "choose_method", "method", "Choose the method that goes on with these rows", "Run"),
    Key("left_square_bracket", "draft_tokens(-1)", "K", "One draft token fewer (K) from now on",
        "Run", counted=True),
    Key("right_square_bracket", "draft_tokens(1)", "K", "One draft token more (K) from now on",
        "Run", counted=True),
    Key("c", "check", "check", "Check another engine's token ids against this target", "Run"),
    Key("e", "intervene", "change", "Change the run as it goes: temperature, B, a new prompt, …",
        "Run"),
    Key("r", "restart", "restart", "Start again from the prompts", "Run"),
    Key("pagedown", "next_stop", "next stop", "In the tour: what comes next", "Tour", where="tour",
        display="PgDn"),
    Key("pageup", "previous_stop", "stop before", "In the tour: what was before", "Tour",
        where="tour", display="PgUp"),
    Key("T", "tour", "tour", "In the tour: leave it, and come back to its stop", "Tour",
        where="tour"),
    Key("S", "stops", "stops", "In the tour: all its stops", "Tour", where="tour"),
    Key("t", "next_theme", "theme", "Next of our themes; all of them in the palette", "App",
        where="app"),
    Key("question_mark", "help", "help", "This page", "App", where="app"),
    Key("ctrl+p", "command_palette", "palette", "Everything by name", "App", where="app"),
    Key("ctrl+z", "suspend_process", "suspend", "To the shell; fg comes back", "App",
        where="app"),
    Key("q,ctrl+q", "quit", "quit", "Leave at once", "App", where="app",
        display="q"),
)  # fmt: skip
"""All keys, in the order in which the help lists them."""


def bindings(where: str) -> list[Binding]:
    """The bindings of one part of the app."""
    return [
        Binding(
            key.keys,
            key.action,
            key.label,
            show=False,  # the foot of the screen is a pane of our own
            key_display=key.shown,
            tooltip=key.help,
            id=key.id,
        )
        for key in KEYS
        if key.where == where
    ]


def groups() -> dict[str, list[Key]]:
    """The keys by group, for the help."""
    out: dict[str, list[Key]] = {}
    for key in KEYS:
        out.setdefault(key.group, []).append(key)
    return out


MAIN = (
    "toggle_run", "next_round", "previous_round", "compare", "faults", "inspect", "cell_mode",
    "choose_method", "draft_tokens(-1)", "draft_tokens(1)", "intervene", "fork", "next_phase",
    "slower", "faster", "restart", "next_theme", "help", "quit",
)  # fmt: skip
"""The keys at the foot of the main screen."""

REPLAY = (
    "toggle_run", "next_round", "previous_round", "inspect", "cell_mode", "next_break(1)", "search",
    "next_phase", "slower", "faster", "copy", "next_theme", "help", "quit",
)  # fmt: skip
"""The keys at the foot of a recorded run: none that would change it."""

COMPARE = (
    "toggle_run", "next_round", "previous_round", "cycle_pane(1)", "choose_method", "next_pace",
    "compare", "next_divergence(1)", "cell_mode", "next_phase", "slower", "faster", "restart",
    "next_theme", "help", "quit",
)  # fmt: skip
"""The keys at the foot of a comparison."""

FORK = (
    "toggle_run", "next_round", "previous_round", "cycle_pane(1)", "next_divergence(1)", "fork",
    "cell_mode", "next_phase", "slower", "faster", "next_theme", "help", "quit",
)  # fmt: skip
"""The keys at the foot of a fork."""

LABELS = {
    "compare": "back", "next_round": "step", "cycle_pane(1)": "lane",
    "next_divergence(1)": "diverge",
}  # fmt: skip
"""Their labels, where they differ."""


def footer(where: str) -> list[Key]:
    """The keys at the foot of a screen, in order; the first ones stay where it is narrow."""
    by_action = {key.action: key for key in KEYS}
    if where in ("main", "replay"):
        return [by_action[action] for action in (MAIN if where == "main" else REPLAY)]
    fork = where == "fork"
    labels = LABELS | ({"fork": "back"} if fork else {})
    keys = [by_action[action] for action in (FORK if fork else COMPARE)]
    return [key._replace(label=labels.get(key.action, key.label)) for key in keys]
