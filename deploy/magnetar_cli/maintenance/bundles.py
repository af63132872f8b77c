"""`magnetar bundles …`: list, unload and split the bundles of namespaces, and find owners."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.maintenance.broker_target import BrokersFolder, BrokersUrl, call_brokers
from magnetar_cli.maintenance.broker_views import BundlesView, OwnersView
from magnetar_cli.maintenance.views import show
from magnetar_cli.options import AsJson

if TYPE_CHECKING:
    from magnetar.admin import Admin

app = typer.Typer(help="List, unload and split bundles.", no_args_is_help=True, pretty_exceptions_enable=False)

Namespace = Annotated[str, typer.Argument(help="Namespace, e.g. public/default.", show_default=False)]
_BUNDLE = "Bundle, e.g. 0x00000000_0x40000000; `list` shows them."


class By(enum.Enum):
    RANGE = "range"
    TOPICS = "topics"


_ALGORITHMS = {By.RANGE: "range_equally_divide", By.TOPICS: "topic_count_equally_divide"}


@app.command("list")
def list_bundles(
    namespace: Namespace, folder: BrokersFolder = None, url: BrokersUrl = "", as_json: AsJson = False
) -> None:
    """List a namespace's bundles with their owners."""
    view = call_brokers(url, folder, lambda admin: BundlesView(namespace, admin.namespaces.bundles(namespace)))
    show(view, as_json=as_json)


@app.command("find")
def find(
    topic: Annotated[str, typer.Argument(help="Topic name, with or without partitions.", show_default=False)],
    folder: BrokersFolder = None,
    url: BrokersUrl = "",
    listener: Annotated[str, typer.Option(help="Show the addresses of this listener.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show which broker serves a topic, or each of its partitions. A bundle without an owner gets one."""
    show(call_brokers(url, folder, lambda admin: OwnersView(admin.topics.owners(topic, listener))), as_json=as_json)


@app.command("unload")
def unload(
    namespace: Namespace,
    bundle: Annotated[str | None, typer.Argument(help=f"{_BUNDLE} Default: all.", show_default=False)] = None,
    to: Annotated[str | None, typer.Option(help="Broker that becomes the owner.", show_default=False)] = None,
    folder: BrokersFolder = None,
    url: BrokersUrl = "",
) -> None:
    """Unload a bundle from its broker: its topics are closed, and clients reconnect at the next owner."""
    call_brokers(url, folder, lambda admin: admin.namespaces.unload(namespace, bundle, to), changes=True)
    print(f"{bundle or 'all bundles'} of {namespace}: unloaded" + (f", {to} owns it now" if to else ""))


@app.command("split")
def split(
    namespace: Namespace,
    bundle: Annotated[str, typer.Argument(help=_BUNDLE, show_default=False)],
    by: Annotated[By, typer.Option(help="Split into equal ranges, or equal numbers of topics.")] = By.RANGE,
    at: Annotated[str | None, typer.Option(help="Split at this hash, e.g. 0x20000000.", show_default=False)] = None,
    folder: BrokersFolder = None,
    url: BrokersUrl = "",
) -> None:
    """Split a bundle into two. Its broker owns both."""
    try:
        position = None if at is None else int(at, 0)
    except ValueError:
        raise typer.BadParameter(f"{at!r} is not a number: use a hash, e.g. 0x20000000", param_hint="--at") from None

    def act(admin: Admin) -> tuple[str, str]:
        if position is not None:
            return admin.namespaces.split_bundle(namespace, bundle, at=position)
        return admin.namespaces.split_bundle(namespace, bundle, _ALGORITHMS[by])

    lower, upper = call_brokers(url, folder, act, changes=True)
    print(f"{bundle} of {namespace} is {lower} and {upper} now")
