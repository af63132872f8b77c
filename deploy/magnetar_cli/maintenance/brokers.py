"""`magnetar brokers …`: list the brokers."""

from __future__ import annotations

import typer

from magnetar_cli.maintenance.broker_target import BrokersFolder, BrokersUrl, call_brokers
from magnetar_cli.maintenance.broker_views import BrokersView
from magnetar_cli.maintenance.views import show
from magnetar_cli.options import AsJson

app = typer.Typer(help="List the brokers that serve topics.", no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _brokers() -> None:
    """Make the app a group, although it has one command."""


@app.command("list")
def list_brokers(folder: BrokersFolder = None, url: BrokersUrl = "", as_json: AsJson = False) -> None:
    """List the brokers that serve topics, with their addresses and load."""
    show(call_brokers(url, folder, lambda admin: BrokersView(admin.brokers.list())), as_json=as_json)
