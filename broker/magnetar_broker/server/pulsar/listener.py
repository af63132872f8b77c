"""Where clients of Pulsar's protocol connect."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from magnetar_broker.server.pulsar.connection import PulsarConnection
from magnetar_broker.server.pulsar.listener_context import Door
from magnetar_wire.process.listening_socket import format_address, open_listening_socket
from magnetar_wire.transport import NotReached

__all__ = ["PulsarListener"]

_BACKLOG = 1024
# Of a machine that is gone without a word.
_PROBES: Final = 2
# How long ending waits for clients to take what they are told.
_TELLING_S = 2.0


class PulsarListener:
    """One address, and the connections that came to it."""

    def __init__(self, door: Door, listener_name: str) -> None:
        self._door = door
        # Which of the broker's listeners it is, for clients that name none; empty: the internal one.
        self.listener_name = listener_name
        # host:port, once it listens.
        self.address = ""
        self.connections: set[PulsarConnection] = set()
        self._server: asyncio.Server | None = None
        self._all_gone: asyncio.Future[None] | None = None

    async def listen(self, address: str) -> None:
        """Raises `NotReached` where it can't."""
        try:
            listening = await open_listening_socket(address)
            _watch_machines(listening, self._door.options.keep_alive_interval_seconds)
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                lambda: PulsarConnection(self._door, self), sock=listening, backlog=_BACKLOG
            )
        except OSError as error:
            reason = error.strerror or error
            raise NotReached(
                f"Pulsar's protocol can't be served at {address}: {reason}: choose another address"
            ) from error
        self.address = format_address(listening.getsockname())

    def opened(self, connection: PulsarConnection) -> str:
        self.connections.add(connection)
        self._door.connections += 1
        self._door.connections_by_ip[_ip(connection)] += 1
        counters = self._door.counters
        counters.connections_opened += 1
        why_not = self._why_not(connection)
        counters.connections_refused += bool(why_not)
        return why_not

    def _why_not(self, connection: PulsarConnection) -> str:
        options, by_ip, ip = self._door.options, self._door.connections_by_ip, _ip(connection)
        if 0 < options.broker_max_connections < self._door.connections:
            return f"the broker has {options.broker_max_connections} connections, which is broker_max_connections"
        most = options.broker_max_connections_per_ip
        if 0 < most < by_ip[ip]:
            return f"{ip} has {most} connections, which is broker_max_connections_per_ip"
        return ""

    def closed(self, connection: PulsarConnection) -> None:
        self.connections.discard(connection)
        by_ip, ip = self._door.connections_by_ip, _ip(connection)
        self._door.connections -= 1
        by_ip[ip] -= 1
        if not by_ip[ip]:
            del by_ip[ip]
        if not self.connections and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    async def close(self) -> None:
        """Whoever does not take what it is told within a moment is cut off."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()
        if self.connections:
            self._all_gone = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_gone], timeout=_TELLING_S)
        for connection in list(self.connections):
            connection.abort()


def _watch_machines(listening: socket.socket, interval_s: float) -> None:
    """What is accepted is closed where the other machine acknowledges nothing any more, read or not (keepalive.py).

    Accepted sockets have the listening one's options.
    """
    seconds = max(1, round(interval_s))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _PROBES * seconds * 1000)


def _ip(connection: PulsarConnection) -> str:
    return connection.address.rpartition(":")[0]
