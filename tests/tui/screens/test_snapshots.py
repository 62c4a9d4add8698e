"""The screen as it looks, for the tested version of Textual."""

from __future__ import annotations

from typing import Any

import pytest
import textual
from textual.pilot import Pilot

from engine.runs.worker import State
from tests.tui_app import MadeUp, make_app, ready, until

pytest.importorskip("pytest_textual_snapshot")
pytestmark = pytest.mark.skipif(
    textual.__version__ != "8.2.8", reason="the pictures are of Textual 8.2.8"
)


def at(*keys: str) -> Any:
    """Wait until the run is over, then press the keys."""

    async def before(pilot: Pilot[Any]) -> None:
        app: Any = pilot.app
        await ready(pilot)
        await until(pilot, lambda: app.control.state is State.FINISHED, 30.0)
        await pilot.press(*keys)
        await pilot.pause(0.2)

    return before


@pytest.mark.parametrize(
    ("method", "size", "theme", "keys"),
    [
        ("eqspec", (120, 35), "graphite", "15g"),
        ("slotspec", (80, 24), "paper", "12g"),
        ("exspec", (160, 45), "okabe", "20g"),
        ("bsp", (120, 35), "graphite", "6g,"),
    ],
    ids=["eqspec", "slotspec", "exspec", "bsp"],
)
def test_looks(
    snap_compare: Any, method: str, size: tuple[int, int], theme: str, keys: str
) -> None:
    app = make_app(MadeUp(max_new_tokens=60), method=method, theme=theme)
    names = [{",": "comma"}.get(key, key) for key in keys]
    assert snap_compare(app, terminal_size=size, run_before=at(*names))
