"""Asking before something is done that can't be taken back."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.service import tell

__all__ = ["Force", "Yes", "confirm"]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Force = Annotated[bool, typer.Option("--force", help="Though somebody is connected, or something is in it.")]


def confirm(what: str, yes: bool) -> None:
    """Returns if somebody wants it. Who can't be asked has said no."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        tell(f"{what}? Nobody is there to ask: say --yes. Nothing was done")
        raise typer.Exit(ExitCode.USAGE)
    if not typer.confirm(f"{what}?", err=True):
        tell("nothing was done")
        raise typer.Exit(ExitCode.FAILED)
