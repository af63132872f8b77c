"""A command made of parts that are imported when they are called, so that `--help` is there at once.

A part is a module with a `typer.Typer` called `app`: one command, or several below it. What the help says about it
stands in the table here, since the module is not looked at for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from magnetar_cli.early_interrupts import raise_as_usual

__all__ = ["Part", "lazy_group"]


_OF_THE_WHOLE: Final = ("install_completion", "show_completion")


@dataclass(frozen=True, slots=True)
class Part:
    """`module` is imported for its `app` when the part is called."""

    module: str
    help: str


def lazy_group(parts: Mapping[str, Part]) -> type[TyperGroup]:
    """The class of a typer app that has these parts, in this order."""

    class LazyGroup(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            # For the help, and for what is suggested instead of a mistyped name: the command that is called comes from
            # `resolve_command`.
            self.commands.update((name, TyperCommand(name, help=part.help)) for name, part in parts.items())

        def get_params(self, ctx: Any) -> list[Any]:
            return _hide_flag_values(super().get_params(ctx))

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, known, rest = super().resolve_command(ctx, args)
            if known is None or name is None:
                return name, known, rest
            command = typer.main.get_command(importlib.import_module(parts[name].module).app)
            raise_as_usual()
            command.name = name
            # Completion is the whole command's to install, not each part's.
            command.params = [one for one in command.params if one.name not in _OF_THE_WHOLE]
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
