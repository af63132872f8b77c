"""Which cluster a command is about, and doing something there with a ledger client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_cli.cluster.errors import NoCluster
from magnetar_cli.cluster.state import load
from magnetar_cli.connection import connected, impatient
from magnetar_cli.local_folder import DEFAULT_FOLDER
from magnetar_cli.plain_errors import plain_errors, plain_logs

__all__ = ["Folder", "Metadata", "at_target", "target_of"]

T = TypeVar("T")

Folder = Annotated[Path, typer.Option("--folder", "-f", help="Folder of a cluster on this machine.")]
Metadata = Annotated[
    str | None,
    typer.Option(
        "--metadata", metavar="LOCATION", help="Metadata store of any cluster: zookeeper://host:port,…/chroot."
    ),
]


def target_of(metadata: str | None, folder: Path) -> str:
    """Return the location of the cluster's metadata. Raises `NoCluster`."""
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


def at_target(metadata: str | None, folder: Path | None, act: Callable[[LedgerClient], Awaitable[T]]) -> T:
    """Does it; what a user may cause is told in one line."""
    plain_logs()

    async def perform() -> T:
        async with connected(impatient(target_of(metadata, folder or DEFAULT_FOLDER))) as client:
            return await act(client)

    with plain_errors():
        return asyncio.run(perform())
