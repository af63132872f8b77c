"""A command's own ledger client: a metadata session and gRPC, open while the command runs.

A command never creates a metadata store: a mistyped location is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.settings.client import LedgerClientSettings
from magnetar_metadata.location import open_metadata
from magnetar_wire.clock import SystemClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.randomness import SystemRandomness

__all__ = ["open_ledger_client", "shorten_connect_timeout"]

# Less than a server's, since a user waits.
_CONNECT_TIMEOUT: Final = "connect_timeout_seconds=5"


def shorten_connect_timeout(location: str) -> str:
    """Return the location of the same metadata store with a connect timeout for a command."""
    if "connect_timeout_seconds" in location or not location.startswith("zookeeper:"):
        return location
    return f"{location}{'&' if '?' in location else '?'}{_CONNECT_TIMEOUT}"


@contextlib.asynccontextmanager
async def open_ledger_client(location: str, options: LedgerClientSettings | None = None) -> AsyncIterator[LedgerClient]:
    """Raise `MetadataError` if no session can be opened, and `NoStore` if there is no metadata store."""
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
