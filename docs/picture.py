"""Makes the pictures of the README and the manual from the app itself.

    python docs/picture.py [ROUND [PAIR]]             docs/screenshot.svg
    python docs/picture.py compare [STEP [PAIR]]      docs/compare.svg

It runs the built-in pair, stops after the given round, and writes what the screen shows.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from engine.config.settings import Settings
from engine.pairs.registry import PairRequest
from engine.text.prompts import read_prompts
from tui.app.app import BatchspecApp
from tui.screens.compare import CompareScreen
from tui.session.control import Control
from tui.session.live import LiveSource
from tui.session.request import AppRequest

SIZE = (124, 36)
WAIT = 0.1


def app_of(pair: str, width: int) -> tuple[BatchspecApp, Control]:
    """The app on the built-in prompts, `width` rows at a time."""
    # in float32 rounding changes no token: what differs, differs for a reason
    settings = Settings(batch_size=width, max_new_tokens=128, dtype="float32")
    request = AppRequest(
        pair=PairRequest(name=pair), settings=settings, prompts=read_prompts(), theme="graphite"
    )
    control = Control(LiveSource(request), settings)
    return BatchspecApp(control, theme=request.theme), control


async def picture(path: Path, number: int, pair: str) -> None:
    """One run."""
    app, control = app_of(pair, 6)
    async with app.run_test(size=SIZE) as pilot:
        while control.timeline.last < number and not control.state.ended:
            await pilot.pause(WAIT)
        control.worker.pause()
        await pilot.press(*str(number), "g")
        await pilot.pause(WAIT)
        path.write_text(app.export_screenshot(title="batchspec-tui"), encoding="utf-8")
        control.stop(2.0)


async def comparison(path: Path, number: int, pair: str) -> None:
    """Four methods side by side."""
    app, control = app_of(pair, 4)
    async with app.run_test(size=SIZE) as pilot:
        while not control.timeline.last:
            await pilot.pause(WAIT)
        await pilot.press("b")
        while not isinstance(app.screen, CompareScreen):
            await pilot.pause(WAIT)
        compared = app.screen.compared
        while len(compared.comparison.ticks) < number and not compared.state.ended:
            await pilot.pause(WAIT)
        compared.worker.pause()
        await pilot.press(*str(number), "g")
        await pilot.pause(WAIT)
        path.write_text(app.export_screenshot(title="batchspec-tui"), encoding="utf-8")
        control.stop(2.0)


if __name__ == "__main__":
    given = sys.argv[1:]
    make, name = picture, "screenshot.svg"
    if given[:1] == ["compare"]:
        make, name, given = comparison, "compare.svg", given[1:]
    wanted = int(given[0]) if given else 12
    pair_name = given[1] if len(given) > 1 else "smollm2"
    asyncio.run(make(Path(__file__).with_name(name), wanted, pair_name))
