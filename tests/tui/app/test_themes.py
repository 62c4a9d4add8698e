"""Themes from files."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from tests.places import ROOT
from tests.tui_app import MadeUp, make_app, ready, until
from tui.app.preferences import Preferences, load_preferences, save_preferences
from tui.app.themes import MEANINGS, ThemeError, fallback_variables, load_themes, parse_theme
from tui.screens.help import HelpScreen
from tui.widgets.styles import INKS, Palette

OURS = ROOT / "themes"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHSPEC_HOME", str(tmp_path))
    return tmp_path


def test_ours_are_complete_and_first(home: Path) -> None:
    themes, problems = load_themes()
    assert not problems
    assert [theme.name for theme in themes] == ["graphite", "okabe", "paper"]
    assert {theme.dark for theme in themes} == {True, False}
    for theme in themes:
        for meaning in MEANINGS:
            ink = Color.parse(theme.variables[f"meaning-{meaning}"])
            cell = Color.parse(theme.variables[f"meaning-{meaning}-cell"])
            if meaning not in ("pad", "stale"):
                assert ink.get_contrast_text(1.0) is not None
                assert contrast(ink, cell) >= 4.5, (theme.name, meaning)


def contrast(one: Color, other: Color) -> float:
    """The contrast ratio of WCAG."""

    def luminance(colour: Color) -> float:
        parts = []
        for value in (colour.r, colour.g, colour.b):
            share = value / 255
            parts.append(share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4)
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_meanings_differ_without_colour() -> None:
    palette = Palette({})
    names = ("prompt", "committed", "accepted", "bonus", "rejected")
    looks = [
        (style.bold, style.italic, style.strike, style.underline)
        for style in (palette[f"cell-{name}"] for name in names)
    ]
    assert len(set(looks)) == len(names)


@pytest.mark.parametrize("name", sorted(BUILTIN_THEMES))
def test_other_themes_get_colours_for_every_name(name: str) -> None:
    theme = BUILTIN_THEMES[name]
    variables = {**theme.to_color_system().generate(), **fallback_variables(theme)}
    palette = Palette(variables)
    for ink in INKS:
        assert palette[ink].color is not None


def test_the_users_own_theme_is_found_and_a_bad_one_is_named(home: Path) -> None:
    folder = home / "config" / "themes"
    folder.mkdir(parents=True)
    text = (OURS / "paper.toml").read_text()
    (folder / "mine.toml").write_text(text)
    (folder / "worse.toml").write_text(text.replace('rejected = { ink = "#a3262f"', "x = { a = 1"))
    (folder / "worst.toml").write_bytes(b"\xff\xfe")
    themes, problems = load_themes()
    assert "mine" in [theme.name for theme in themes]
    assert len(problems) == 2
    assert any("worse" in problem and "rejected" in problem for problem in problems)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('dim = "#7c8090"', 'dim = "no colour"', "no colour"),
        ("[base]", "[bass]", "[base] is missing"),
        ("[meanings]", "[meanings", "not a TOML file"),
        ('ink = "#14602c"', "ink = 7", "'ink' of accepted"),
    ],
)
def test_errors_name_the_entry(old: str, new: str, said: str) -> None:
    text = (OURS / "paper.toml").read_text()
    assert old in text
    with pytest.raises(ThemeError, match="theme 'x'") as caught:
        parse_theme("x", text.replace(old, new))
    assert said in str(caught.value)


def test_preferences_are_kept(home: Path) -> None:
    assert load_preferences() == Preferences()
    save_preferences(Preferences(theme="paper"))
    assert load_preferences().theme == "paper"
    (home / "config" / "app.json").write_text("{")
    assert load_preferences() == Preferences()


async def test_an_unknown_theme_is_said_and_the_default_taken(home: Path) -> None:
    app = make_app(paused=True, theme="mauve")
    assert app.theme == "graphite"
    async with app.run_test(size=(120, 35), notifications=True) as pilot:
        await ready(pilot)
        assert any("mauve" in note.message for note in app._notifications)


async def test_a_theme_is_shown_as_it_is_edited(home: Path) -> None:
    folder = home / "config" / "themes"
    folder.mkdir(parents=True)
    text = (OURS / "paper.toml").read_text()
    (folder / "mine.toml").write_text(text)
    app = make_app(paused=True, theme="mine")
    async with app.run_test(size=(120, 35)) as pilot:
        await ready(pilot)
        assert app.theme_variables["meaning-accepted"] == "#14602c"
        (folder / "mine.toml").write_text(text.replace("#14602c", "#0000aa"))
        app._reload_themes()
        await pilot.pause(0.1)
        assert app.theme == "mine"
        assert app.theme_variables["meaning-accepted"] == "#0000aa"


async def test_help_while_loading_is_left_open(home: Path) -> None:
    app = make_app(MadeUp(delay=0.3))
    async with app.run_test(size=(120, 35)) as pilot:
        await pilot.pause(0.05)
        await pilot.press("question_mark")
        await until(pilot, lambda: app.control.timeline.last >= 1)
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        await ready(pilot)
