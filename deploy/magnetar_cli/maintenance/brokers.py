"""`magnetar brokers …`: who serves topics."""

from __future__ import annotations

import typer

from magnetar_cli.cluster.commands import DEFAULT_FOLDER
from magnetar_cli.maintenance.admin_target import ServiceUrl, at_brokers
from magnetar_cli.maintenance.broker_views import BrokersView
from magnetar_cli.maintenance.showing import show
from magnetar_cli.maintenance.target import AsJson, Folder

app = typer.Typer(help="Who serves topics.", no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _brokers() -> None:
    """So that the app is a group, though it has one command."""


@app.command("list")
def list_brokers(folder: Folder = DEFAULT_FOLDER, service_url: ServiceUrl = None, as_json: AsJson = False) -> None:
    """Show all that take topics: where they are reached, and what they have to do."""
    show(at_brokers(service_url, folder, lambda admin: BrokersView(admin.brokers.list())), as_json=as_json)
