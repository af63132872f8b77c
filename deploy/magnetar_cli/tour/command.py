"""`magnetar tour`: the command line."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def tour(
    once: Annotated[
        bool, typer.Option("--once", help="End after the last step, instead of leaving the broker running.")
    ] = False,
    messages: Annotated[
        int, typer.Option("--messages", min=1000, max=5_000_000, help="Number of messages to publish.")
    ] = 100_000,
) -> None:
    """Start a broker, publish, consume on two types of subscription, count with Spark; then leave the broker running.

    All data is in temporary folders, which are deleted at the end. Exit status: 0 all results are correct, 1 one is
    not, 130 Ctrl-C before the end of the last step.
    """
    from magnetar_cli.tour.narrator import Narrator
    from magnetar_cli.tour.steps import run_tour
    from magnetar_cli.user_errors import configure_logs, print_user_errors

    configure_logs()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # the exception stops the child processes
    try:
        with print_user_errors():
            status = run_tour(Narrator(), once=once, messages=messages)
    except BrokenPipeError:
        # The reader has closed the pipe. Without this, Python would report it again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    raise typer.Exit(status)
