"""A moment of a recording as a picture, without a terminal."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.config.errors import UserError
from tui.app.replay_app import RecordedSource, ReplayApp, recorded_control
from tui.screens.run import RunScreen


def picture(
    paths: tuple[Path, ...],
    number: int | None,
    *,
    size: tuple[int, int] = (120, 35),
    theme: str | None = None,
    notices: list[str] | None = None,
) -> str:
    """SVG of the screen at the end of a round; None: of the last one.

    Args:
        notices: what could not be read is added here.

    Raises:
        UserError: there is no such round.
    """
    source = RecordedSource(paths)
    image = asyncio.run(_picture(source, number, size, theme))
    if notices is not None:
        notices += source.notices
    return image


async def _picture(
    source: RecordedSource, number: int | None, size: tuple[int, int], theme: str | None
) -> str:
    app = ReplayApp(recorded_control(source), source, theme=theme)
    async with app.run_test(size=size) as pilot:
        while not (app.control.state.ended and isinstance(app.screen, RunScreen)):
            await pilot.pause(0.02)
        last = app.screen.last
        if number is not None and not 1 <= number <= last:
            raise UserError(f"--round {number}: the trace has rounds 1 to {last}")
        app.playhead.jump(last if number is None else number, last)
        app.screen.show_frame()
        await pilot.pause(0.1)
        return app.export_screenshot(title=source.name)
