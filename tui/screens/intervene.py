"""`e`: changes to the run as it goes, chosen from a list and typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.config.errors import UserError
from tui.screens.ask import AskScreen, Choice, ChooseScreen
from tui.screens.run import RunScreen
from tui.session.changes import ChangingSource

if TYPE_CHECKING:
    from collections.abc import Callable

    Apply = Callable[[str], None]


class Setting(NamedTuple):
    """A setting that can be typed."""

    name: str
    label: str
    kind: type[int] | type[float]
    note: str


SETTINGS = (
    Setting("temperature", "temperature", float, "0 is greedy decoding"),
    Setting("top_k", "top-k", int, "sample from so many tokens; 0: off"),
    Setting("top_p", "top-p", float, "sample from this share; 1: off"),
    Setting("seed", "seed", int, "of the sampling"),
    Setting("batch_size", "batch size, B", int, "rows in a batch"),
    Setting("window", "window, W", int, "rows in view of exspec"),
    Setting("draft_tokens", "draft tokens, K", int, "or auto"),
    Setting("max_new_tokens", "max new tokens", int, "budget of each row"),
)


def open_interventions(screen: RunScreen) -> None:
    """Ask what is to change from the next round on."""
    over = not screen.changes.can_change
    if over and not screen.changes.can_resume:
        ended = isinstance(screen.control.source, ChangingSource)
        words = "The run is over: r starts again." if ended else "There is no run to change here."
        screen.notify(words, timeout=3)
        return
    row = screen.frame_now().selected
    number = screen.cursor.round
    force = Choice("force", "force a draft token", f"what row {row}'s draft is to say next")
    when = "the run, which is over, goes on with it" if over else "at the end of the queue"
    choices = [Choice("prompt", "add a prompt", when)]
    if not over:
        choices.insert(0, force)
    if number < screen.last and not over:
        help = f"every row as it stood after round {number}"
        choices.append(Choice("back", "go on from here", help))
    help = f"a lane beside this one after round {number}"
    choices.append(Choice("fork", "fork", help))
    for setting in SETTINGS if not over else ():
        choices.append(Choice(setting.name, setting.label, f"{_now(screen, setting)}"))

    def chosen(choice: str | None) -> None:
        if choice == "prompt":
            ask("one more prompt", "", "", lambda text: _join(screen, text))
        elif choice == "force" and row is not None:
            title = f"row {row}'s draft is to say"
            note = "the target judges it · a text, or token ids: #12 #7"
            ask(title, note, "", lambda text: screen.changes.draft_token(row, text))
        elif choice == "back":
            screen.changes.go_back(number)
            screen.playhead.follow(screen.last)
            screen.show_frame()
        elif choice == "fork":
            screen.action_fork()
        elif choice is not None:
            setting = next(setting for setting in SETTINGS if setting.name == choice)
            value = str(_now(screen, setting))
            ask(setting.label, setting.note, value, lambda text: _set(screen, setting, text))

    def ask(title: str, note: str, value: str, then: Apply) -> None:
        def answered(text: str | None) -> None:
            if text:
                then(text)
                screen.show_frame()

        screen.app.push_screen(AskScreen(title, note, value), answered)

    title = "the run is over" if over else "from the next round on"
    screen.app.push_screen(ChooseScreen(title, choices), chosen)


def _join(screen: RunScreen, text: str) -> None:
    over = screen.changes.can_resume
    screen.changes.prompt(text, _chat(screen))
    if over:
        screen.playhead.follow(screen.last)


def _now(screen: RunScreen, setting: Setting) -> object:
    settings = screen.control.settings
    place = settings if hasattr(settings, setting.name) else settings.sampling
    return getattr(place, setting.name)


def _chat(screen: RunScreen) -> bool | None:
    """Whether this run's prompts wear the chat template."""
    request = getattr(screen.control.source, "request", None)
    return request.chat if request is not None else None


def typed(setting: Setting, text: str) -> object:
    """The value that was typed for a setting.

    Raises:
        UserError: it is no number.
    """
    value = text.strip()
    if setting.name == "draft_tokens" and value == "auto":
        return value
    try:
        return setting.kind(value)
    except ValueError:
        raise UserError(f"{setting.label}: “{text}” is no number") from None


def _set(screen: RunScreen, setting: Setting, text: str) -> None:
    try:
        screen.changes.settings(**{setting.name: typed(setting, text)})
    except UserError as error:
        screen.notify(str(error), severity="warning", markup=False)
