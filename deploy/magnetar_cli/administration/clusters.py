"""`magnetar clusters …`: show clusters, and store how others are reached."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.administration.simple_command import Argument, SimpleCommand, add_command
from magnetar_cli.options import AdminUrl, AsJson
from magnetar_cli.output import format_json, print_facts
from magnetar_cli.service import DEFAULT_URL, call_admin

if TYPE_CHECKING:
    from magnetar.admin import Admin

app = typer.Typer(
    help="Show clusters, and store how others are reached.", no_args_is_help=True, pretty_exceptions_enable=False
)

Name = Annotated[str, typer.Argument(help="Cluster, e.g. standalone.")]
ServiceUrl = Annotated[str, typer.Option("--service-url", help="URL of HTTP, e.g. http://host:8080.")]
BrokerServiceUrl = Annotated[
    str, typer.Option("--broker-service-url", help="URL of Pulsar's protocol, e.g. pulsar://host:6650.")
]

add_command(app, SimpleCommand("list", "clusters.list", "List all clusters.", lists="cluster"))


@app.command("show")
def show_cluster(cluster: Name, url: AdminUrl = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show how a cluster is reached."""
    found = call_admin(url, lambda admin: admin.clusters.get(cluster))
    facts = [(one.name, value) for one in dataclasses.fields(found) if (value := getattr(found, one.name))]
    if as_json:
        print(format_json(dict(facts)))
    else:
        print_facts((name.replace("_", " "), value) for name, value in facts)


@app.command("create")
def create_cluster(
    cluster: Name, service_url: ServiceUrl = "", broker_service_url: BrokerServiceUrl = "", url: AdminUrl = DEFAULT_URL
) -> None:
    """Store how another cluster is reached. It has no effect yet."""

    def act(admin: Admin) -> tuple[str, ...]:
        from magnetar.admin import Cluster

        return admin.clusters.create(cluster, Cluster(service_url=service_url, broker_service_url=broker_service_url))

    for warning in call_admin(url, act, changes=True):
        typer.echo(f"warning: {warning}", err=True)
    print(f"{cluster}: created")


add_command(
    app,
    SimpleCommand(
        "delete",
        "clusters.delete",
        "Delete what is stored about another cluster.",
        arguments=(Argument("cluster", Name),),
        confirms="Delete {cluster}",
        prints="{cluster}: deleted",
    ),
)
