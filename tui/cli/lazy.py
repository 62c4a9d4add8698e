"""Subcommands that are imported only when they are called."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click


class Lazy(NamedTuple):
    """A subcommand: where it is, and what `--help` says of it."""

    module: str
    attribute: str
    help: str


class LazyGroup(click.Group):
    """A click group whose help needs none of its subcommands' modules."""

    lazy: dict[str, Lazy]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self.lazy.get(cmd_name)
        if found is None:
            return None
        command = getattr(import_module(found.module), found.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.lazy.items()])
