"""Choose the cluster that `magnetar bookies` and `magnetar ledgers` use, and open a ledger client for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_cli.cluster.errors import NoCluster
from magnetar_cli.cluster.state import load
from magnetar_cli.cluster_folder import DEFAULT_FOLDER
from magnetar_cli.ledger_connection import open_ledger_client, shorten_connect_timeout
from magnetar_cli.user_errors import configure_logs, print_user_errors

__all__ = ["Folder", "Metadata", "call_ledger_client", "find_metadata"]

T = TypeVar("T")

Folder = Annotated[Path, typer.Option("--folder", "-f", help="Folder of a cluster on this machine.")]
Metadata = Annotated[
    str | None,
    typer.Option(
        "--metadata", metavar="LOCATION", help="Metadata store of any cluster: zookeeper://host:port,…/chroot."
    ),
]


def find_metadata(metadata: str | None, folder: Path) -> str:
    """Return the location of the cluster's metadata store. Raise `NoCluster`."""
    if metadata:
        return metadata
    try:
        return load(folder.absolute()).zookeeper.location
    except NoCluster:
        raise NoCluster(
            f"there is no cluster in {folder.absolute()}: set its metadata store with "
            "--metadata zookeeper://host:port/chroot, or its folder on this machine with --folder. "
            "`magnetar cluster up` creates one"
        ) from None


def call_ledger_client(metadata: str | None, folder: Path | None, act: Callable[[LedgerClient], Awaitable[T]]) -> T:
    """Call `act` with a ledger client and return its result. Print a user's error as one line, and exit."""
    configure_logs()

    async def perform() -> T:
        async with open_ledger_client(
            shorten_connect_timeout(find_metadata(metadata, folder or DEFAULT_FOLDER))
        ) as client:
            return await act(client)

    with print_user_errors():
        return asyncio.run(perform())
