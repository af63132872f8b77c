"""`magnetar brokers …`: list the brokers, change their settings while they run, and check backlog quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.maintenance.broker_target import BrokersFolder, BrokersUrl, call_brokers
from magnetar_cli.maintenance.broker_views import BrokersView
from magnetar_cli.maintenance.views import show
from magnetar_cli.options import AsJson
from magnetar_cli.output import print_rows

if TYPE_CHECKING:
    from magnetar.admin import Admin

app = typer.Typer(
    help="List the brokers, change their settings while they run, and check backlog quotas.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Setting = Annotated[str, typer.Argument(help="Setting, e.g. max_topics_per_namespace or maxTopicsPerNamespace.")]


@app.command("list")
def list_brokers(folder: BrokersFolder = None, url: BrokersUrl = "", as_json: AsJson = False) -> None:
    """List the brokers that serve topics, with their addresses and load."""
    show(call_brokers(url, folder, lambda admin: BrokersView(admin.brokers.list())), as_json=as_json)


@app.command("config")
def show_configuration(
    changeable: Annotated[bool, typer.Option("--changeable", help="Settings that can be changed.")] = False,
    every: Annotated[bool, typer.Option("--all", help="All settings of one broker.")] = False,
    folder: BrokersFolder = None,
    url: BrokersUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show the settings that were changed while the brokers ran."""

    def act(admin: Admin) -> dict[str, str]:
        if every or changeable:
            values = admin.brokers.runtime_configuration()
            return values if every else {name: values.get(name, "") for name in admin.brokers.dynamic_settings()}
        return admin.brokers.dynamic_configuration()

    print_rows(("setting", "value"), sorted(call_brokers(url, folder, act).items()), as_json=as_json)


@app.command("set-config")
def set_configuration(
    setting: Setting,
    value: Annotated[str, typer.Argument(help="Value, as on the command line of a broker.")],
    folder: BrokersFolder = None,
    url: BrokersUrl = "",
) -> None:
    """Change a setting of all brokers while they run. They apply it within seconds, and when they start."""
    call_brokers(url, folder, lambda admin: admin.brokers.set_dynamic_setting(setting, value), changes=True)
    print(f"{setting}: {value}")


@app.command("delete-config")
def delete_configuration(setting: Setting, folder: BrokersFolder = None, url: BrokersUrl = "") -> None:
    """Let all brokers use the value of a setting that they were started with."""
    call_brokers(url, folder, lambda admin: admin.brokers.delete_dynamic_setting(setting), changes=True)
    print(f"{setting}: as started")


@app.command("check-backlog-quotas")
def check_backlog_quotas(folder: BrokersFolder = None, url: BrokersUrl = "") -> None:
    """Enforce the backlog quotas of the topics of one broker now, instead of at the interval."""
    call_brokers(url, folder, lambda admin: admin.brokers.check_backlog_quotas())
    print("backlog quotas: checked")
