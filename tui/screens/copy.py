"""`y`: copies something of the selected row, or of the run."""

from __future__ import annotations

from tui.screens.ask import Choice, ChooseScreen
from tui.screens.run import RunScreen
from tui.session.reproduce import command_line
from tui.view.state.frame import Frame
from tui.widgets.clipboard import copy

CHOICES = [
    Choice("text", "the row's text", "what the model wrote up to here"),
    Choice("ids", "its token ids", "of what the model wrote"),
    Choice("all", "all its token ids", "the prompt's as well"),
    Choice("command", "the command line", "that makes this run again"),
]


def open_copy(screen: RunScreen) -> None:
    """Ask what is to be copied, and copy it."""

    def chosen(choice: str | None) -> None:
        if choice is not None:
            screen.run_worker(_copy(screen, copied(screen.frame_now(), choice)))

    row = screen.frame_now().selected
    screen.app.push_screen(ChooseScreen(f"copy of row {row}", CHOICES), chosen)


def copied(frame: Frame, choice: str) -> str:
    """What is copied: as it is at the cursor."""
    timeline, selected = frame.timeline, frame.selected
    if choice == "command":
        return command_line(timeline.header) if timeline.header is not None else ""
    track = timeline.tracks.get(selected) if selected is not None else None
    if track is None:
        return ""
    number = frame.committed_round
    if choice == "text":
        return "".join(track.text_at(number))
    first = track.prompt_length if choice == "ids" else 0
    return " ".join(
        str(token) for token in track.tokens_at(number)[first : track.length_at(number)]
    )


async def _copy(screen: RunScreen, text: str) -> None:
    way = await copy(screen.app, text)
    screen.notify(f"{len(text)} characters {way}", timeout=3, markup=False)
