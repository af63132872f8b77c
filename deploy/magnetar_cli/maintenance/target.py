"""Which cluster a command is about, and doing something there with a ledger client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_cli.cluster.commands import DEFAULT_FOLDER
from magnetar_cli.cluster.state import load
from magnetar_cli.connection import connected
from magnetar_cli.plain_errors import plain_errors

__all__ = ["AsJson", "Folder", "Metadata", "Target", "at_target", "target_of"]

T = TypeVar("T")

Folder = Annotated[Path, typer.Option("--folder", "-f", help="The cluster on this machine that is kept there.")]
Metadata = Annotated[
    str | None, typer.Option("--metadata", metavar="LOCATION", help="Any cluster: zookeeper://host:port,…/chroot.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]

# A person waits; a server would have more patience.
_CONNECT: Final = "connect_timeout_s=5"


@dataclass(frozen=True, slots=True)
class Target:
    metadata: str

    @property
    def impatient(self) -> str:
        if "connect_timeout_s" in self.metadata or not self.metadata.startswith("zookeeper:"):
            return self.metadata
        return f"{self.metadata}{'&' if '?' in self.metadata else '?'}{_CONNECT}"


def target_of(metadata: str | None, folder: Path) -> Target:
    """Raises `NoCluster`."""
    return Target(metadata or load(folder.absolute()).zookeeper.location)


def at_target(metadata: str | None, folder: Path | None, act: Callable[[LedgerClient], Awaitable[T]]) -> T:
    """Does it; what a user may cause is told in one line."""
    logging.basicConfig(level=logging.ERROR, format="magnetar: %(message)s")
    # It tells of each attempt to connect; what comes of them is told once.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)

    async def perform() -> T:
        async with connected(target_of(metadata, folder or DEFAULT_FOLDER).impatient) as client:
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
