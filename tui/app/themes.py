"""Colour themes from files: our own and the user's, found when the app starts.

A theme is a TOML file that gives the meanings their colours (accepted, rejected,
bonus, prompt, pad, …) and the screen its ground. Its file name is its name. The
user's own lie in the configuration directory, under `themes`; one that has the
name of ours replaces it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from textual.color import Color
from textual.theme import Theme

from engine.config.paths import config_dir

DEFAULT = "graphite"
MEANINGS = (
    "prompt",
    "committed",
    "accepted",
    "bonus",
    "drafted",
    "rejected",
    "pad",
    "stale",
    "ghost",
    "diverged",
)
OLD_MEANINGS = {"proposed": "drafted"}
"""Names of the version before, which users' own themes may still have."""

PHASES = ("prefill", "draft", "verify", "accept", "realign", "schedule")
LINES = ("rule", "dim", "strong", "selected")


class ThemeError(ValueError):
    """A theme file that cannot be used; the message names the file and the entry."""


def user_themes_dir() -> Path:
    """Where the user's own themes lie."""
    return config_dir() / "themes"


def load_themes() -> tuple[list[Theme], list[str]]:
    """All themes, ours first, and a line for each file that cannot be used."""
    themes: dict[str, Theme] = {}
    problems: list[str] = []
    for name, text in _files():
        try:
            themes[name] = parse_theme(name, text)
        except ThemeError as error:
            problems.append(str(error))
    order = sorted(themes, key=lambda name: (name != DEFAULT, name))
    return [themes[name] for name in order], problems


def themes_stamp() -> tuple[tuple[str, int], ...]:
    """Changes when one of the user's theme files does."""
    try:
        return tuple(
            sorted(
                (path.name, path.stat().st_mtime_ns) for path in user_themes_dir().glob("*.toml")
            )
        )
    except OSError:
        return ()


def _files() -> Iterator[tuple[str, str]]:
    for entry in resources.files("themes").iterdir():
        if entry.name.endswith(".toml"):
            yield entry.name.removesuffix(".toml"), entry.read_text(encoding="utf-8")
    folder = user_themes_dir()
    if folder.is_dir():
        for path in sorted(folder.glob("*.toml")):
            try:
                yield path.stem, path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                yield path.stem, "\0"


def parse_theme(name: str, text: str) -> Theme:
    """A theme from the text of its file.

    Raises:
        ThemeError: not TOML, a missing entry, or a value that is no colour.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ThemeError(f"theme '{name}': not a TOML file ({error})") from None
    base = _table(name, data, "base")
    variables = dict(
        _colours(name, _table(name, data, "lines"), LINES, "line"),
        **_colours(name, _table(name, data, "phases"), PHASES, "phase"),
    )
    meanings = dict(_table(name, data, "meanings"))
    for old, current in OLD_MEANINGS.items():
        if old in meanings:
            meanings.setdefault(current, meanings[old])
    for meaning in MEANINGS:
        entry = _table(name, meanings, meaning)
        variables[f"meaning-{meaning}"] = _colour(name, entry, "ink", meaning)
        variables[f"meaning-{meaning}-cell"] = _colour(name, entry, "cell", meaning)
    variables |= _furniture(variables, _colour(name, base, "background", "base"))
    colours: dict[str, Any] = {key: _colour(name, base, key, "base") for key in _BASE}
    dark = bool(data.get("dark", True))
    return Theme(name=name, dark=dark, variables=variables, **colours)


_BASE = (
    "primary",
    "secondary",
    "accent",
    "success",
    "warning",
    "error",
    "foreground",
    "background",
    "surface",
    "panel",
)


def _furniture(variables: Mapping[str, str], ground: str) -> dict[str, str]:
    """Textual's own parts, in the colours of the theme."""
    return {
        "footer-background": ground,
        "footer-key-foreground": variables["line-strong"],
        "footer-description-foreground": variables["line-dim"],
        "footer-item-background": ground,
        "border": variables["line-rule"],
        "border-blurred": variables["line-rule"],
        "scrollbar": variables["line-rule"],
        "scrollbar-hover": variables["line-dim"],
        "scrollbar-active": variables["line-dim"],
        "scrollbar-background": ground,
        "scrollbar-background-hover": ground,
        "scrollbar-background-active": ground,
        "scrollbar-corner-color": ground,
    }


def _table(name: str, data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = data.get(key)
    if not isinstance(table, Mapping):
        raise ThemeError(f"theme '{name}': [{key}] is missing")
    return table


def _colour(name: str, table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str):
        raise ThemeError(f"theme '{name}': '{key}' of {where} is missing")
    try:
        Color.parse(value)
    except Exception:
        raise ThemeError(f"theme '{name}': '{value}' ({key} of {where}) is no colour") from None
    return value


def _colours(
    name: str, table: Mapping[str, Any], keys: tuple[str, ...], prefix: str
) -> dict[str, str]:
    return {f"{prefix}-{key}": _colour(name, table, key, prefix) for key in keys}


def fallback_variables(theme: Theme) -> dict[str, str]:
    """Colours of the meanings for a theme that has none of its own (Textual's)."""
    if theme.ansi:
        return _ansi_variables()
    generated = theme.to_color_system().generate()
    ground = Color.parse(generated["background"])
    ink = Color.parse(generated["foreground"])
    hues = {
        "prompt": generated["secondary"],
        "committed": generated["foreground"],
        "accepted": generated["success"],
        "bonus": generated["accent"],
        "drafted": generated["primary"],
        "rejected": generated["error"],
        "pad": ground.blend(ink, 0.25).hex,
        "stale": ground.blend(ink, 0.45).hex,
        "ghost": generated["warning"],
        "diverged": generated["warning"],
    }
    variables = {}
    for meaning, hue in hues.items():
        colour = Color.parse(hue)
        variables[f"meaning-{meaning}"] = colour.blend(ink, 0.3).hex
        share = 0.04 if meaning == "pad" else 0.18
        variables[f"meaning-{meaning}-cell"] = ground.blend(colour, share).hex
    phases = ("secondary", "primary", "accent", "success", "error", "secondary")
    for phase, source in zip(PHASES, phases, strict=True):
        variables[f"phase-{phase}"] = generated[source]
    variables["line-rule"] = ground.blend(ink, 0.18).hex
    variables["line-dim"] = ground.blend(ink, 0.5).hex
    variables["line-strong"] = ink.hex
    variables["line-selected"] = ground.blend(ink, 0.1).hex
    return variables


def _ansi_variables() -> dict[str, str]:
    inks = {
        "prompt": "ansi_cyan",
        "committed": "ansi_default",
        "accepted": "ansi_green",
        "bonus": "ansi_yellow",
        "drafted": "ansi_magenta",
        "rejected": "ansi_red",
        "pad": "ansi_bright_black",
        "stale": "ansi_bright_black",
        "ghost": "ansi_bright_magenta",
        "diverged": "ansi_bright_red",
    }
    phases = ("bright_black", "magenta", "blue", "green", "red", "cyan")
    variables = {f"meaning-{key}": value for key, value in inks.items()}
    variables |= {f"meaning-{key}-cell": "ansi_default" for key in inks}
    variables |= {
        f"phase-{phase}": f"ansi_{colour}" for phase, colour in zip(PHASES, phases, strict=True)
    }
    variables |= {
        "line-rule": "ansi_bright_black",
        "line-dim": "ansi_bright_black",
        "line-strong": "ansi_default",
        "line-selected": "ansi_default",
    }
    return variables
