"""`magnetar standalone`: everything in one process, in the foreground, until it is told to end."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.process_command import ConfigFile, ListOptions, Run, SetFlags, list_options, run_process

if TYPE_CHECKING:
    from magnetar_cli.standalone.settings import StandaloneSettings

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
    pulsar_port: Annotated[
        int | None, typer.Option("--pulsar-port", help="For Pulsar's clients: 6650 if not said; 0: any free one.")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option("--http-port", help="Health, metrics: 8080 if not said; 0: any free one.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Listen at this address: 127.0.0.1 if not said; 0.0.0.0: at all.")
    ] = None,
    config: ConfigFile = None,
    settings: SetFlags = None,
    as_json: Annotated[
        bool, typer.Option("--json", help='Once ready, one line on standard output: {"grpc": …, "pulsar": …, …}.')
    ] = False,
    options: ListOptions = False,
) -> None:
    """Run a whole Magnetar in one process: metadata store, one bookie, and a broker.

    Settings come from the file, from environment variables (MAGNETAR_GRPC_PORT and so on), from --set, and from the
    options above, which go first; --options lists them. It may be killed at any moment, and started again on the same
    folder: nothing that was acknowledged is lost. SIGTERM and SIGINT have it end in peace.

    Exit status: 0 it ended in peace, 70 a bug, 74 the disk failed, 75 it did not end in time, 78 it refuses to start.
    """
    if options:
        from magnetar_cli.standalone.settings import StandaloneSettings

        list_options(StandaloneSettings)
        return

    named = {
        "data_folder": data,
        "grpc_port": grpc_port,
        "pulsar_port": pulsar_port,
        "http_port": http_port,
        "host": host,
    }
    flags = [*(settings or ()), *(f"{name}={value}" for name, value in named.items() if value is not None)]
    if ephemeral:
        flags.append("ephemeral=true")

    def what_runs() -> tuple[type[StandaloneSettings], Run[StandaloneSettings]]:
        from magnetar_cli.standalone.run import run_standalone
        from magnetar_cli.standalone.settings import StandaloneSettings

        return StandaloneSettings, partial(run_standalone, as_json=as_json)

    run_process("standalone", config, flags, what_runs)
