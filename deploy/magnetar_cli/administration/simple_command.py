"""Make a command from a declaration. The command calls one method of `magnetar.admin`.

The command has the declared parameters, then `--yes` if it asks for confirmation, `--url`, and `--json` if it prints a
list. In JSON, each item of the list is an object. The table of admin calls states which calls are idempotent: after a
lost answer, the outcome of any other is unknown.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import typer
from typer.core import TyperCommand

from magnetar_cli.options import AdminUrl, AsJson, Yes, confirm
from magnetar_cli.output import print_rows
from magnetar_cli.service import DEFAULT_URL, call_admin, exit_on_error

__all__ = ["Argument", "SimpleCommand", "add_command", "add_function"]


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of the method, and an argument or option of the command."""

    name: str
    annotation: Any
    default: Any = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """In `confirms` and `prints`, names in braces are replaced by the arguments."""

    name: str
    # The method, e.g. "topics.truncate".
    method: str
    help: str
    arguments: tuple[Argument, ...] = ()
    # The question that asks for confirmation, and the one with --force.
    confirms: str = ""
    confirms_forced: str = ""
    # The line that is printed at the end.
    prints: str = ""
    # The heading of the list that is printed instead.
    lists: str = ""


def add_command(app: typer.Typer, declared: SimpleCommand) -> None:
    """Add the declared command to the app."""

    def run(**given: Any) -> None:
        if declared.confirms:
            forced = given.get("force") and declared.confirms_forced
            confirm((forced or declared.confirms).format(**given), given["yes"])
        group, _, method = declared.method.partition(".")
        arguments = {one.name: given[one.name] for one in declared.arguments}
        result = call_admin(
            given["url"],
            lambda admin: getattr(getattr(admin, group), method)(**arguments),
            changes=_is_not_idempotent(declared.method),
        )
        if declared.lists:
            print_rows((declared.lists,), [(one,) for one in result], as_json=given["as_json"])
        else:
            print(declared.prints.format(**given))

    parameters = [
        *declared.arguments,
        *([Argument("yes", Yes, False)] if declared.confirms else []),
        Argument("url", AdminUrl, DEFAULT_URL),
        *([Argument("as_json", AsJson, False)] if declared.lists else []),
    ]
    add_function(app, declared.name, declared.help, parameters, run)


def add_function(
    app: typer.Typer,
    name: str,
    help: str,
    parameters: Sequence[Argument],
    run: Callable[..., None],
    *,
    has_long_options: bool = False,
) -> None:
    """Add a command that runs a function with these parameters. `has_long_options`: their names or texts are long."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(one.name, kind, default=one.default, annotation=one.annotation) for one in parameters]
    )
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    run.__doc__ = help
    if has_long_options:
        app.command(name, cls=_PlainHelpCommand, context_settings={"max_content_width": _MAX_HELP_WIDTH})(run)
    else:
        app.command(name)(run)


# The help has the width of the terminal, but at most this one.
_MAX_HELP_WIDTH: Final = 1_000


class _PlainHelpCommand(TyperCommand):
    """A command whose help is not in a table, which cuts long options and values at the width of a terminal."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rich_markup_mode = None


def _is_not_idempotent(method: str) -> bool:
    with exit_on_error():
        from magnetar_wire.admin.calls import call_of_method

        return not call_of_method(method).idempotent
