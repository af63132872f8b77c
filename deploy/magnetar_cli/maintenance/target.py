"""Which cluster a command is about, and doing something there with a ledger client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_cli.cluster.commands import DEFAULT_FOLDER
from magnetar_cli.cluster.state import load
from magnetar_cli.connection import connected, impatient
from magnetar_cli.plain_errors import plain_errors, plain_logs

__all__ = ["AsJson", "Folder", "Metadata", "at_target", "target_of"]

T = TypeVar("T")

Folder = Annotated[Path, typer.Option("--folder", "-f", help="The cluster on this machine that is kept there.")]
Metadata = Annotated[
    str | None, typer.Option("--metadata", metavar="LOCATION", help="Any cluster: zookeeper://host:port,…/chroot.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def target_of(metadata: str | None, folder: Path) -> str:
    """The location of its metadata. Raises `NoCluster`."""
    return metadata or load(folder.absolute()).zookeeper.location


def at_target(metadata: str | None, folder: Path | None, act: Callable[[LedgerClient], Awaitable[T]]) -> T:
    """Does it; what a user may cause is told in one line."""
    plain_logs()

    async def perform() -> T:
        async with connected(impatient(target_of(metadata, folder or DEFAULT_FOLDER))) as client:
            return await act(client)

    with plain_errors():
        return asyncio.run(perform())


def json_ready(value: Any) -> Any:
    """What `json.dumps` is told of what it does not know."""
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "value"):  # an enum's member
        return value.value
    raise TypeError(f"{type(value).__name__} has no form in JSON")
