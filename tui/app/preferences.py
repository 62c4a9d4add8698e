"""What the app remembers from one start to the next: the theme."""

from __future__ import annotations

import msgspec

from engine.config.paths import config_dir

FILE = "app.json"


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """The user's last choices."""

    theme: str = ""


def load_preferences() -> Preferences:
    """The last choices; the defaults where there are none, or none that can be read."""
    try:
        return msgspec.json.decode((config_dir() / FILE).read_bytes(), type=Preferences)
    except (OSError, msgspec.MsgspecError):
        return Preferences()


def save_preferences(preferences: Preferences) -> None:
    """Keep the choices. A place that cannot be written is no reason to complain."""
    folder = config_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{FILE}.new"
        draft.write_bytes(msgspec.json.encode(preferences))
        draft.replace(folder / FILE)
    except OSError:
        return
