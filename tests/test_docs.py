"""The documents name files that exist, and each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.config.methods import METHODS
from tests.places import ROOT

DOCS = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
FOLDERS = ("engine", "tui", "tests", "themes", "docs")


def named(text: str) -> set[str]:
    """The paths of this repository that stand in backquotes."""
    paths = re.findall(r"`([\w./]+)`", text)
    return {path for path in paths if path.split("/")[0] in FOLDERS and "/" in path}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_exists(path: Path) -> None:
    assert [name for name in named(path.read_text()) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_link_to_another_document_leads_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([\w./-]+\.(?:md|svg))", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_architecture_names_every_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    packages = {
        f"{init.parent.relative_to(ROOT)}/"
        for init in [*ROOT.glob("engine/*/__init__.py"), *ROOT.glob("tui/*/__init__.py")]
    }
    assert packages - named(text) - {f"{name}/" for name in named(text)} == set()


def test_the_glossary_has_every_method() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    assert [name for name in METHODS if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("root", ["engine", "tui"])
def test_every_package_says_what_it_holds(root: str) -> None:
    inits = sorted((ROOT / root).rglob("__init__.py"))
    silent = [init for init in inits if not init.read_text().startswith('"""')]
    assert [str(init.relative_to(ROOT)) for init in silent] == []
