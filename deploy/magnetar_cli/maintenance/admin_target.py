"""Which brokers `magnetar brokers` and `magnetar bundles` ask: those at a URL, or those of a cluster on this machine.

`--folder` names a cluster on this machine. Without it `--url` or MAGNETAR_URL counts, as for all commands of clients.
Without any of them it is the cluster in `.magnetar`, if there is one, else `magnetar://localhost:6652`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from magnetar_cli.local_folder import DEFAULT_FOLDER, has_cluster
from magnetar_cli.service import DEFAULT_URL, administered, end_as_told

if TYPE_CHECKING:
    from magnetar.admin import Admin

__all__ = ["BrokersFolder", "BrokersUrl", "at_brokers"]

T = TypeVar("T")

BrokersUrl = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="MAGNETAR_URL",
        metavar="URL",
        help=f"Service URL, magnetar://host:port,… Default: the cluster in {DEFAULT_FOLDER}, else {DEFAULT_URL}.",
        show_default=False,
    ),
]
BrokersFolder = Annotated[
    Path | None,
    typer.Option("--folder", "-f", help="A cluster on this machine, in place of --url.", show_default=False),
]


def at_brokers(url: str, folder: Path | None, act: Callable[[Admin], T], *, changes: bool = False) -> T:
    """Return the result of `act`. `changes`: a lost answer leaves open whether it was done."""
    if folder is None and not url and has_cluster():
        folder = DEFAULT_FOLDER
    if folder is not None:
        with end_as_told():
            from magnetar_cli.cluster import LocalCluster

            url = LocalCluster(folder.absolute()).service_url
    return administered(url or DEFAULT_URL, act, changes=changes)
