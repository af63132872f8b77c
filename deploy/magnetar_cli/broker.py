"""`magnetar broker`: run one broker of a cluster in the foreground until a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from magnetar_cli.process_command import ConfigFile, ListSettings, Run, SetFlags, print_settings, run_process

if TYPE_CHECKING:
    from magnetar_broker.settings.process import BrokerSettings

app = typer.Typer(add_completion=False)


@app.command()
def broker(config: ConfigFile = None, settings: SetFlags = None, options: ListSettings = False) -> None:
    """Run one broker of a cluster in the foreground.

    Settings come from the file, from environment variables (e.g. MAGNETAR_BROKER_ID), and from --set; --options lists
    them. broker_id and metadata are required. The broker waits for the metadata store and the bookies: GET /ready
    reports which ones are missing. SIGTERM and SIGINT shut the broker down gracefully.

    Exit status: 0 graceful shutdown, 70 a bug, 75 the shutdown timed out, 78 refused to start.
    """
    if options:
        print_settings(_import_process()[0])
        return
    run_process("broker", config, settings or (), _import_process)


def _import_process() -> tuple[type[BrokerSettings], Run[BrokerSettings]]:
    from magnetar_broker.daemon.run import run_broker
    from magnetar_broker.settings.process import BrokerSettings

    return BrokerSettings, run_broker
