"""A group of commands that are imported when they are called, so that `--help` is fast.

A part is a module with a `typer.Typer` named `app`: one command, or a group. Its line of the help is in the table of
parts, since the module is not imported for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from magnetar_cli.early_interrupts import restore_interrupts

__all__ = ["Part", "make_lazy_group"]

_COMPLETION_OPTIONS: Final = ("install_completion", "show_completion")


@dataclass(frozen=True, slots=True)
class Part:
    """`module` is imported for its `app` when the part is called."""

    module: str
    help: str


def make_lazy_group(parts: Mapping[str, Part]) -> type[TyperGroup]:
    """Return the class of a typer app that has these parts, in this order."""

    class LazyGroup(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            # These are for the help, and for suggestions after a mistyped name. `resolve_command` returns the real one.
            self.commands.update((name, TyperCommand(name, help=part.help)) for name, part in parts.items())

        def get_params(self, ctx: Any) -> list[Any]:
            return _hide_flag_values(super().get_params(ctx))

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, known, rest = super().resolve_command(ctx, args)
            if known is None or name is None:
                return name, known, rest
            command = typer.main.get_command(importlib.import_module(parts[name].module).app)
            restore_interrupts()
            command.name = name
            # `magnetar` installs completion for all commands.
            command.params = [one for one in command.params if one.name not in _COMPLETION_OPTIONS]
            for one in (command, *(command.commands.values() if isinstance(command, TyperGroup) else ())):
                one.help = _join_lines(one.help)
                _hide_flag_values(one.get_params(ctx))
            return name, command, rest

    return LazyGroup


def _join_lines(text: str | None) -> str | None:
    """Return a help text with each paragraph in one line, as a terminal wraps it. Typer joins only the first one's."""
    return text and "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in text.split("\n\n"))


def _hide_flag_values(params: list[Any]) -> list[Any]:
    """Give flags an empty metavar. Typer shows `<bool>` after them otherwise, though they take no value."""
    for one in params:
        if isinstance(one, TyperOption) and one.is_flag and one.metavar is None:
            one.metavar = ""
    return params
