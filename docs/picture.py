"""Makes docs/screenshot.svg, the picture of the README, from the app itself.

    python docs/picture.py [ROUND]

It runs the built-in pair, stops after the given round, and writes what the screen shows.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from engine.pairs.registry import PairRequest
from engine.prompts import read_prompts
from engine.settings import Settings
from tui.app import BatchspecApp
from tui.control import Control
from tui.live import LiveSource
from tui.request import AppRequest

SIZE = (124, 36)
WAIT = 0.1


async def picture(path: Path, number: int, pair: str, width: int = 6) -> None:
    settings = Settings(batch_size=width, max_new_tokens=128)
    request = AppRequest(
        pair=PairRequest(name=pair), settings=settings, prompts=read_prompts(), theme="graphite"
    )
    control = Control(LiveSource(request), settings)
    app = BatchspecApp(control, theme=request.theme)
    async with app.run_test(size=SIZE) as pilot:
        while control.timeline.last < number and not control.state.ended:
            await pilot.pause(WAIT)
        control.worker.pause()
        await pilot.press(*str(number), "g")
        await pilot.pause(WAIT)
        path.write_text(app.export_screenshot(title="batchspec-tui"), encoding="utf-8")
        control.stop(2.0)


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    pair_name = sys.argv[2] if len(sys.argv) > 2 else "smollm2"
    asyncio.run(picture(Path(__file__).with_name("screenshot.svg"), wanted, pair_name))
