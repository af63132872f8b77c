"""A ledger client of a command's own: a metadata session and gRPC, for as long as it takes.

A command never creates a metadata store: a mistyped location is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.location import open_metadata
from magnetar_wire.clock import SystemClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.randomness import SystemRandomness

__all__ = ["connected", "impatient"]

# A person waits; a server would have more patience.
_CONNECT: Final = "connect_timeout_seconds=5"


def impatient(location: str) -> str:
    """The same metadata store, for a command."""
    if "connect_timeout_seconds" in location or not location.startswith("zookeeper:"):
        return location
    return f"{location}{'&' if '?' in location else '?'}{_CONNECT}"


@contextlib.asynccontextmanager
async def connected(location: str, options: LedgerClientSettings | None = None) -> AsyncIterator[LedgerClient]:
    """Raises `MetadataError` where no session can be opened: `NoStore` where there is no store."""
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        store = await open_metadata(location, clock, create=False)
        stack.push_async_callback(store.close)
        transport = GrpcTransport()
        stack.push_async_callback(transport.close)
        client = LedgerClient(store, transport, clock, SystemRandomness(), options)
        stack.push_async_callback(client.close)
        await client.start()
        yield client
