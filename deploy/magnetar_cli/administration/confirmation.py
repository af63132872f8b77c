"""Ask for confirmation before a command does something that can't be undone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.service import tell

__all__ = ["Force", "Yes", "confirm"]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Force = Annotated[bool, typer.Option("--force", help="Delete it even if it is in use or not empty.")]


def confirm(what: str, yes: bool) -> None:
    """Return if the user confirms it. Without a terminal to ask at, raise as if the user had refused."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        tell(f"{what}? Nothing was done: standard input is not a terminal to confirm it at, so use --yes")
        raise typer.Exit(ExitCode.USAGE)
    if not typer.confirm(f"{what}?", err=True):
        tell("nothing was done")
        raise typer.Exit(ExitCode.FAILED)
