"""Names of options and commands that were changed: the old ones work for one version more."""

from __future__ import annotations

from collections.abc import Sequence

OPTIONS = {
    "--own-text": "--prompt-lookup",
    "--no-own-text": "--no-prompt-lookup",
    "--reads": "--eagle-layers",
}
COMMANDS = {"phrases": "ngram"}


def current_names(arguments: Sequence[str]) -> list[str]:
    """The arguments of the command line, with today's names in the place of old ones."""
    words = list(arguments)
    if words:
        words[0] = COMMANDS.get(words[0], words[0])
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in OPTIONS:
            words[place] = OPTIONS[option] + equals + value
    return words
