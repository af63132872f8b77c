"""`magnetar bookie`: one bookie in the foreground, until it is told to end."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def bookie(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A TOML file of settings: name = value.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting; it goes before file and environment."),
    ] = None,
) -> None:
    """Run one bookie in the foreground.

    Settings come from the file, from environment variables (MAGNETAR_BOOKIE_ID and so on), and from --set. It needs
    bookie_id, data_folder and metadata. SIGTERM and SIGINT have it end in peace.

    Exit status: 0 it ended in peace, 70 a bug, 74 the disk failed, 75 it did not end in time, 78 it refuses to start.
    """
    # Before anything starts a thread: see there.
    from magnetar_bookie.daemon.exit_status import ExitStatus
    from magnetar_bookie.daemon.signals import StopSignals

    signals = StopSignals()
    from magnetar_bookie.daemon.run import run_bookie
    from magnetar_bookie.daemon.settings import BookieSettings
    from magnetar_wire.configuration import InvalidConfiguration, load
    from magnetar_wire.logs import log_to_stderr

    try:
        loaded = load(BookieSettings, file=config, environment=os.environ, flags=settings or ())
    except InvalidConfiguration as error:
        print(f"magnetar bookie: the configuration is wrong:\n{error}", file=sys.stderr)
        raise typer.Exit(ExitStatus.REFUSED) from None
    log_to_stderr(loaded.log_level, loaded.log_format)
    status = run_bookie(loaded, signals)
    logging.shutdown()
    # Threads that hang with the disk would be waited for otherwise.
    os._exit(status)
