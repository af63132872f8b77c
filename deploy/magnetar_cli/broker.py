"""`magnetar broker`: one broker of a cluster in the foreground, until it is told to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from magnetar_cli.process_command import ConfigFile, ListOptions, Run, SetFlags, list_options, run_process

if TYPE_CHECKING:
    from magnetar_broker.daemon.settings import BrokerSettings

app = typer.Typer(add_completion=False)


@app.command()
def broker(config: ConfigFile = None, settings: SetFlags = None, options: ListOptions = False) -> None:
    """Run one broker of a cluster in the foreground.

    Settings come from the file, from environment variables (MAGNETAR_BROKER_ID and so on), and from --set; --options
    lists them. It needs broker_id and metadata, and waits for the metadata store and the bookies if they are not there:
    GET /ready says what for. SIGTERM and SIGINT have it end in peace.

    Exit status: 0 it ended in peace, 70 a bug, 75 it did not end in time, 78 it refuses to start.
    """
    if options:
        list_options(_what_runs()[0])
        return
    run_process("broker", config, settings or (), _what_runs)


def _what_runs() -> tuple[type[BrokerSettings], Run[BrokerSettings]]:
    from magnetar_broker.daemon.run import run_broker
    from magnetar_broker.daemon.settings import BrokerSettings

    return BrokerSettings, run_broker
