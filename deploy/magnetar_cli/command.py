"""The `magnetar` command and its subcommands, which are imported when they are called (lazy_group.py)."""

from __future__ import annotations

import os
from typing import Annotated, Final

import typer

from magnetar_cli.exit_codes import format_exit_codes
from magnetar_cli.lazy_group import Part, make_lazy_group

_PARTS: Final = {
    "standalone": Part("magnetar_cli.standalone.command", "Run metadata store, bookie and broker in one process."),
    "cluster": Part("magnetar_cli.cluster.commands", "Run a cluster of processes on this machine."),
    "bookies": Part("magnetar_cli.maintenance.bookies", "List, make read-only and decommission bookies."),
    "ledgers": Part("magnetar_cli.maintenance.ledgers", "List, inspect, recover and delete ledgers."),
    "brokers": Part("magnetar_cli.maintenance.brokers", "List brokers, and change settings while they run."),
    "bundles": Part("magnetar_cli.maintenance.bundles", "List, unload and split bundles."),
    "bookie": Part("magnetar_cli.bookie", "Run one bookie in the foreground."),
    "broker": Part("magnetar_cli.broker", "Run one broker of a cluster in the foreground."),
    "produce": Part("magnetar_cli.messages.produce", "Publish messages."),
    "consume": Part("magnetar_cli.messages.consume", "Receive messages from a subscription."),
    "tail": Part("magnetar_cli.messages.tail", "Show messages as they are published."),
    "topics": Part("magnetar_cli.administration.topics", "Create, inspect, empty and delete topics."),
    "subscriptions": Part(
        "magnetar_cli.administration.subscriptions", "Create, inspect, move and delete subscriptions."
    ),
    "namespaces": Part(
        "magnetar_cli.administration.namespaces", "Create, list and delete namespaces, and set their policies."
    ),
    "explain": Part(
        "magnetar_cli.administration.explain", "Explain why a subscription delivers nothing, and what to do."
    ),
    "schemas": Part("magnetar_cli.administration.schemas", "Show, upload, check and delete the schemas of topics."),
    "clusters": Part("magnetar_cli.administration.clusters", "Show clusters, and store how others are reached."),
    "tenants": Part("magnetar_cli.administration.tenants", "Create, list and delete tenants."),
    "perf": Part("magnetar_cli.perf.commands", "Measure throughput and latency."),
    "tour": Part("magnetar_cli.tour.command", "Show a broker, subscriptions and Spark in a minute."),
}

app = typer.Typer(
    cls=make_lazy_group(_PARTS),
    name="magnetar",
    help="Messaging and streaming with Pulsar's semantics.",
    epilog=format_exit_codes(),
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they would print the values of variables, also secrets
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from magnetar_wire.process.version import read_version

        print(f"magnetar {read_version()}")
        raise typer.Exit


@app.callback()
def _magnetar(
    url: Annotated[
        str,
        typer.Option("--url", metavar="URL", help="Service URL, e.g. magnetar://host:6652.", show_default=False),
    ] = "",
    listener_name: Annotated[
        str,
        typer.Option(
            "--listener-name", metavar="NAME", help="Connect to the brokers' listener of this name.", show_default=False
        ),
    ] = "",
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Pass the options before the command on to it, as defaults, by their environment variables."""
    for variable, value in (("MAGNETAR_URL", url), ("MAGNETAR_LISTENER_NAME", listener_name)):
        if value:
            os.environ[variable] = value
