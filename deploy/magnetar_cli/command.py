"""The `magnetar` command. Each part is imported when it is called: see lazy_group.py."""

from __future__ import annotations

import os
from typing import Annotated, Final

import typer

from magnetar_cli.exit_codes import exit_codes_shown
from magnetar_cli.lazy_group import Part, lazy_group

_PARTS: Final = {
    "standalone": Part("magnetar_cli.standalone.command", "Run everything in one process: a broker to work with."),
    "cluster": Part("magnetar_cli.cluster.commands", "A cluster of real processes on this machine."),
    "bookies": Part("magnetar_cli.maintenance.bookies", "Who stores the ledgers, and who is to leave."),
    "ledgers": Part("magnetar_cli.maintenance.ledgers", "What is stored, repaired and swept."),
    "brokers": Part("magnetar_cli.maintenance.brokers", "Who serves topics."),
    "bundles": Part("magnetar_cli.maintenance.bundles", "Which broker serves which topics; moved and split by hand."),
    "bookie": Part("magnetar_cli.bookie", "Run one bookie in the foreground."),
    "broker": Part("magnetar_cli.broker", "Run one broker of a cluster in the foreground."),
    "produce": Part("magnetar_cli.messages.produce", "Publish messages."),
    "consume": Part("magnetar_cli.messages.consume", "Receive messages from a subscription."),
    "tail": Part("magnetar_cli.messages.tail", "Look at topics as they grow."),
    "topics": Part("magnetar_cli.administration.topics", "Make, look at, empty and delete topics."),
    "subscriptions": Part("magnetar_cli.administration.subscriptions", "Make, look at, move and delete subscriptions."),
    "namespaces": Part("magnetar_cli.administration.namespaces", "What topics are grouped in, and what holds there."),
    "tenants": Part("magnetar_cli.administration.tenants", "Whose namespaces there are."),
    "perf": Part("magnetar_cli.perf.commands", "Measure publishing and receiving."),
    "tour": Part("magnetar_cli.tour.command", "Show all of it in a minute: broker, subscriptions, Spark."),
}

app = typer.Typer(
    cls=lazy_group(_PARTS),
    name="magnetar",
    help="Messaging and streaming with Pulsar's semantics.",
    epilog=exit_codes_shown(),
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they show what variables hold, secrets too
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from magnetar_wire.version import magnetar_version

        print(f"magnetar {magnetar_version()}")
        raise typer.Exit


@app.callback()
def _magnetar(
    url: Annotated[
        str,
        typer.Option("--url", metavar="URL", help="Service URL, magnetar://host:port,…", show_default=False),
    ] = "",
    listener_name: Annotated[
        str, typer.Option("--listener-name", metavar="NAME", help="Name of the brokers' listener.", show_default=False)
    ] = "",
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """What is said in front of the command is a default for it, as the variables are which say the same."""
    for variable, value in (("MAGNETAR_URL", url), ("MAGNETAR_LISTENER_NAME", listener_name)):
        if value:
            os.environ[variable] = value
