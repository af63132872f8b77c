"""`magnetar standalone`: everything in one process, in the foreground, until it is told to end."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def standalone(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The folder of all data: ./magnetar-data if not said.")
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep the data in a temporary folder that goes at the end.")
    ] = False,
    grpc_port: Annotated[
        int | None, typer.Option("--grpc-port", help="Where clients connect: 6652 if not said; 0: any free one.")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option("--http-port", help="Health, metrics: 8080 if not said; 0: any free one.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Listen at this address: 127.0.0.1 if not said; 0.0.0.0: at all.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A TOML file of settings: name = value.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting; it goes before file and environment."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help='Once ready, one line on standard output: {"grpc": …, "http": …}.')
    ] = False,
    options: Annotated[
        bool, typer.Option("--options", help="List every setting with its default and meaning, as TOML; start nothing.")
    ] = False,
) -> None:
    """Run a whole Magnetar in one process: metadata store, one bookie, and a broker.

    Settings come from the file, from environment variables (MAGNETAR_GRPC_PORT and so on), from --set, and from the
    options above, which go first; --options lists them. It may be killed at any moment, and started again on the same
    folder: nothing that was acknowledged is lost. SIGTERM and SIGINT have it end in peace.

    Exit status: 0 it ended in peace, 70 a bug, 74 the disk failed, 75 it did not end in time, 78 it refuses to start.
    """
    if options:
        from magnetar_cli.standalone.option_list import option_lines
        from magnetar_cli.standalone.settings import StandaloneSettings

        print("\n".join(option_lines(StandaloneSettings)))
        return

    # Before anything starts a thread: see there.
    from magnetar_bookie.daemon.exit_status import ExitStatus
    from magnetar_bookie.daemon.signals import StopSignals

    signals = StopSignals()
    from magnetar_cli.standalone.run import run_standalone
    from magnetar_cli.standalone.settings import StandaloneSettings
    from magnetar_wire.configuration import InvalidConfiguration, load
    from magnetar_wire.logs import log_to_stderr

    named = {"data_folder": data, "grpc_port": grpc_port, "http_port": http_port, "host": host}
    flags = [*(settings or ()), *(f"{name}={value}" for name, value in named.items() if value is not None)]
    if ephemeral:
        flags.append("ephemeral=true")
    try:
        loaded = load(StandaloneSettings, file=config, environment=os.environ, flags=flags)
    except InvalidConfiguration as error:
        print(f"magnetar standalone: the configuration is wrong:\n{error}", file=sys.stderr)
        raise typer.Exit(ExitStatus.REFUSED) from None
    log_to_stderr(loaded.log_level, loaded.log_format)
    status = run_standalone(loaded, signals, as_json=as_json)
    logging.shutdown()
    # Threads that hang with the disk would be waited for otherwise.
    os._exit(status)
