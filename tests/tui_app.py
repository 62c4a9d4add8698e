"""The app on made-up records, for tests: sources, and waiting for what is to be seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from textual.pilot import Pilot

from engine.config.settings import Settings
from engine.records.schema import Record
from engine.runs.worker import Progress
from tests import synthetic
from tui.app.app import BatchspecApp
from tui.session.control import Control


class MadeUp:
    """A source of made-up records, `delay` seconds a round."""

    name = "made-up"

    def __init__(
        self,
        *,
        delay: float = 0.0,
        live: bool = True,
        fail_after: int | None = None,
        busy: float = 0.0,
        **options: Any,
    ) -> None:
        self.delay = delay
        self.live = live
        self.fail_after = fail_after
        self.busy = busy
        self.options = options
        self.opened: list[Settings] = []

    def open(self, settings: Settings, progress: Progress) -> Iterator[Record]:
        self.opened.append(settings)
        progress("loading the target", 0.5)
        options = {"max_new_tokens": 400, **self.options}
        stream = synthetic.records(
            settings.method,
            batch_size=settings.batch_size,
            draft_tokens=int(settings.draft_tokens),
            **options,
        )
        for number, record in enumerate(stream):
            if self.fail_after is not None and number > self.fail_after:
                raise RuntimeError("the model fell over [/INST] \x1b[2J")
            if self.delay:
                time.sleep(self.delay)
            if self.busy:
                until = time.perf_counter() + self.busy
                while time.perf_counter() < until:
                    pass
            yield record


def make_app(
    source: MadeUp | None = None,
    *,
    method: str = "eqspec",
    batch_size: int = 4,
    paused: bool = False,
    speed: float | None = None,
    theme: str | None = None,
    log: Any = None,
) -> BatchspecApp:
    settings = Settings(method=method, batch_size=batch_size)
    control = Control(source or MadeUp(), settings, paused=paused, speed=speed, log=log)
    return BatchspecApp(control, theme=theme)


async def until(pilot: Pilot[Any], condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Let the app go on until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        await pilot.pause(0.02)


async def ready(pilot: Pilot[Any], rounds: int = 0) -> None:
    """Wait for the main screen and so many rounds."""
    from tui.screens.main import MainScreen

    app = pilot.app
    assert isinstance(app, BatchspecApp)
    await until(pilot, lambda: isinstance(app.screen, MainScreen))
    await until(pilot, lambda: app.control.timeline.last >= rounds)
    await pilot.pause(0.05)


def screen_text(app: Any) -> str:
    """What the screen shows, as plain text."""
    width, height = app.size
    lines = app.screen._compositor.render_strips(app.size)
    del width, height
    return "\n".join(strip.text for strip in lines)
