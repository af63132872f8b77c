"""The way to other brokers, at their internal listeners. One connection to each, made when it is needed.

There are so many at most, of those that nobody uses at the moment: brokers come back at other addresses, for ever.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from magnetar_broker.errors import BrokerError, NothingDone
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.transport import Code, Connection, NotReached, ProbingTransport, Rejected, TransportError

__all__ = ["NoPeers", "Peers", "PeersLike"]

_MOST: Final = 1_000
# What a broker's refusal says, where it is not that it can't do it now.
_REFUSED: Final = {Code.INVALID_ARGUMENT: ErrorCode.INVALID_ARGUMENT, Code.UNIMPLEMENTED: ErrorCode.UNSUPPORTED}


class PeersLike(Protocol):
    async def call(self, address: str, method: str, request: bytes, timeout_s: float) -> bytes:
        """The answer. Raises `NothingDone`: it was not reached, or can't do it now; any other `BrokerError`: it refuses
        that (INVALID_ARGUMENT, UNSUPPORTED), or nobody knows what was done (UNKNOWN_ERROR)."""

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        """Whether no process listens there, as that machine says. False where it can't be told."""

    async def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Peer:
    connection: Connection
    # Under way.
    calls: int = 0


class Peers:
    def __init__(self, transport: ProbingTransport, most: int = _MOST) -> None:
        self._transport = transport
        self._most = most
        # By address; the one used last comes last.
        self._peers: dict[str, _Peer] = {}
        # Connections that are being closed.
        self._closing: dict[asyncio.Task[None], None] = {}

    async def call(self, address: str, method: str, request: bytes, timeout_s: float) -> bytes:
        peer = self._peers.pop(address, None) or _Peer(self._transport.connect(address))
        self._peers[address] = peer
        peer.calls += 1
        try:
            return await self._call(peer.connection, address, method, request, timeout_s)
        finally:
            peer.calls -= 1
            self._let_go()

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        return await self._transport.refuses_connections(address, timeout_s)

    async def close(self) -> None:
        peers, self._peers = list(self._peers.values()), {}
        for peer in peers:
            self._close(peer)
        while self._closing:
            await asyncio.wait(list(self._closing))

    def _let_go(self) -> None:
        """Of those that were not used for longest, and on which no call is under way."""
        too_many = len(self._peers) - self._most
        idle = [address for address, peer in self._peers.items() if not peer.calls] if too_many > 0 else []
        for address in idle[:too_many]:
            self._close(self._peers.pop(address))

    def _close(self, peer: _Peer) -> None:
        task = asyncio.get_running_loop().create_task(peer.connection.close(), name="closing a peer")
        self._closing[task] = None
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        del self._closing[task]
        if not task.cancelled():
            task.exception()  # seen: nothing is expected of it any more

    async def _call(self, connection: Connection, address: str, method: str, request: bytes, timeout_s: float) -> bytes:
        try:
            return await connection.call(method, request, timeout_s=timeout_s)
        except NotReached as error:
            raise NothingDone(f"broker {address} can't be reached: {error}") from error
        except Rejected as error:
            if error.code in _REFUSED:
                raise BrokerError(_REFUSED[error.code], f"broker {address} refused {method}: {error}") from error
            raise NothingDone(f"broker {address} can't execute {method} now: {error}") from error
        except TransportError as error:
            raise BrokerError(
                ErrorCode.UNKNOWN_ERROR, f"unknown whether broker {address} has executed {method}: {error}"
            ) from error


class NoPeers:
    """Of a broker that has no way to others."""

    async def call(self, address: str, method: str, request: bytes, timeout_s: float) -> bytes:
        raise NothingDone(f"this broker has no connections to other brokers, so {address} can't be reached")

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        return False

    async def close(self) -> None:
        pass
