"""Calls of other brokers, at their internal listeners, over one connection to each, which is opened on first use.

The number of idle connections is limited, because brokers may come back at ever new addresses.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from magnetar_broker.errors import BrokerError, RequestNotStarted
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.transport import Code, Connection, NotReached, ProbingTransport, Rejected, TransportError

__all__ = ["NoPeers", "PeerConnections", "Peers"]

_MAX_CONNECTIONS: Final = 1_000
# The errors for a broker's refusal, unless it can't carry the call out now.
_ERRORS: Final = {Code.INVALID_ARGUMENT: ErrorCode.INVALID_ARGUMENT, Code.UNIMPLEMENTED: ErrorCode.UNSUPPORTED}


class Peers(Protocol):
    async def call(self, address: str, method: str, request: bytes, timeout_s: float) -> bytes:
        """Return the response.

        Raises `RequestNotStarted`: the broker was not reached, or can't carry the call out now; `BrokerError`: it
        refuses the call (INVALID_ARGUMENT, UNSUPPORTED), or the outcome is unknown (UNKNOWN_ERROR).
        """

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        """Return whether the machine answers that no process listens at the address. False if that is unknown."""

    async def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Peer:
    connection: Connection
    calls_in_flight: int = 0


class PeerConnections:
    def __init__(self, transport: ProbingTransport, max_connections: int = _MAX_CONNECTIONS) -> None:
        self._transport = transport
        self._max_connections = max_connections
        # By address, the least recently used first.
        self._peers: dict[str, _Peer] = {}
        # The tasks that close connections.
        self._closing: dict[asyncio.Task[None], None] = {}

    async def call(self, address: str, method: str, request: bytes, timeout_s: float) -> bytes:
        peer = self._peers.pop(address, None) or _Peer(self._transport.connect(address))
        self._peers[address] = peer
        peer.calls_in_flight += 1
        try:
            return await self._call(peer.connection, address, method, request, timeout_s)
        finally:
            peer.calls_in_flight -= 1
            self._close_excess()

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        return await self._transport.refuses_connections(address, timeout_s)

    async def close(self) -> None:
        peers, self._peers = list(self._peers.values()), {}
        for peer in peers:
            self._close(peer)
        while self._closing:
            await asyncio.wait(list(self._closing))

    def _close_excess(self) -> None:
        """Close the least recently used connections above the maximum that have no calls in flight."""
        excess = len(self._peers) - self._max_connections
        if excess > 0:
            idle = [address for address, peer in self._peers.items() if not peer.calls_in_flight]
            for address in idle[:excess]:
                self._close(self._peers.pop(address))

    def _close(self, peer: _Peer) -> None:
        task = asyncio.get_running_loop().create_task(peer.connection.close(), name="closing a peer")
        self._closing[task] = None
        task.add_done_callback(self._on_closed)

    def _on_closed(self, task: asyncio.Task[None]) -> None:
        del self._closing[task]
        if not task.cancelled():
            task.exception()  # retrieved: the connection is not used any more

    async def _call(self, connection: Connection, address: str, method: str, request: bytes, timeout_s: float) -> bytes:
        try:
            return await connection.call(method, request, timeout_s=timeout_s)
        except NotReached as error:
            raise RequestNotStarted(f"broker {address} can't be reached: {error}") from error
        except Rejected as error:
            if error.code in _ERRORS:
                raise BrokerError(_ERRORS[error.code], f"broker {address} refused {method}: {error}") from error
            raise RequestNotStarted(f"broker {address} can't execute {method} now: {error}") from error
        except TransportError as error:
            raise BrokerError(
                ErrorCode.UNKNOWN_ERROR, f"unknown whether broker {address} has executed {method}: {error}"
            ) from error


class NoPeers:
    """The peers of a broker that has no transport to other brokers."""

    async def call(self, address: str, method: str, request: bytes, timeout_s: float) -> bytes:
        raise RequestNotStarted(f"this broker has no connections to other brokers, so {address} can't be reached")

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        return False

    async def close(self) -> None:
        pass
