"""`magnetar standalone`: run metadata store, bookie and broker in one foreground process until a signal."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.process_command import ConfigFile, ListSettings, Run, SetFlags, print_settings, run_process

if TYPE_CHECKING:
    from magnetar_cli.standalone.settings import StandaloneSettings

app = typer.Typer(add_completion=False)


@app.command()
def standalone(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Folder of all data. Default: magnetar-data.")
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep the data in a temporary folder, deleted at the end.")
    ] = False,
    grpc_port: Annotated[
        int | None, typer.Option("--grpc-port", help="Port of Magnetar's clients. Default: 6652; 0: any free port.")
    ] = None,
    pulsar_port: Annotated[
        int | None, typer.Option("--pulsar-port", help="Port of Pulsar's clients. Default: 6650; 0: any free port.")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option("--http-port", help="Port of health and metrics. Default: 8080; 0: any free port.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen at. Default: 127.0.0.1; 0.0.0.0: all.")
    ] = None,
    config: ConfigFile = None,
    settings: SetFlags = None,
    as_json: Annotated[
        bool, typer.Option("--json", help='When ready, print one line of JSON: {"grpc": …, "pulsar": …, …}.')
    ] = False,
    options: ListSettings = False,
) -> None:
    """Run metadata store, one bookie and a broker in one process.

    Settings come from the file, from environment variables (e.g. MAGNETAR_GRPC_PORT), from --set, and from the other
    options, each overriding those before it; --options lists the settings. After a crash or kill -9 it can be started
    again on the same folder: no persisted message is lost. SIGTERM and SIGINT shut it down gracefully.

    Exit status: 0 graceful shutdown, 70 a bug, 74 the disk failed, 75 the shutdown timed out, 78 refused to start.
    """
    if options:
        from magnetar_cli.standalone.settings import StandaloneSettings

        print_settings(StandaloneSettings)
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

    def import_process() -> tuple[type[StandaloneSettings], Run[StandaloneSettings]]:
        from magnetar_cli.standalone.run import run_standalone
        from magnetar_cli.standalone.settings import StandaloneSettings

        return StandaloneSettings, partial(run_standalone, as_json=as_json)

    run_process("standalone", config, flags, import_process)
