"""A listener for clients of Pulsar's protocol: an address, its connections and their maximum number."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from magnetar_broker.server.pulsar.connection import PulsarConnection
from magnetar_broker.server.pulsar.listener_context import ListenerContext
from magnetar_wire.process.addresses import get_host
from magnetar_wire.process.listening_socket import format_address, open_listening_socket
from magnetar_wire.transport import NotReached

__all__ = ["PulsarListener"]

_BACKLOG = 1024
# Unanswered TCP keepalive probes after which a client's machine counts as unreachable.
_TCP_PROBES: Final = 2
# How long `close` waits for clients to take their last frames.
_CLOSE_TIMEOUT_S: Final = 2.0


class PulsarListener:
    """Accepts connections at one address."""

    def __init__(self, context: ListenerContext, listener_name: str) -> None:
        self._context = context
        # The advertised listener that lookups use for clients that name none; empty: the internal one.
        self.listener_name = listener_name
        # host:port, once it listens.
        self.address = ""
        self.connections: set[PulsarConnection] = set()
        self._server: asyncio.Server | None = None
        self._all_closed: asyncio.Future[None] | None = None

    async def listen(self, address: str) -> None:
        """Start to listen at `address`. Raises `NotReached` if that fails."""
        try:
            await self._listen(await open_listening_socket(address))
        except OSError as error:
            reason = error.strerror or error
            raise NotReached(
                f"can't listen for Pulsar's protocol at {address}: {reason}: choose another address"
            ) from error

    async def _listen(self, listening: socket.socket) -> None:
        try:
            _enable_tcp_keepalive(listening, self._context.settings.keep_alive_interval_seconds)
            self.address = format_address(listening.getsockname())
            self._server = await asyncio.get_running_loop().create_server(
                self.make_connection, sock=listening, backlog=_BACKLOG, start_serving=False
            )
            await self._server.start_serving()
        except BaseException:  # cancelled, too: then nobody would close it
            if self._server is not None:
                self._server.close()
            listening.close()
            raise

    def make_connection(self) -> PulsarConnection:
        """Return the protocol object of an accepted connection."""
        return PulsarConnection(self._context, self.listener_name, self._add, self._remove)

    def _add(self, connection: PulsarConnection) -> str:
        """Add a connection. Return why it must be refused; empty: it is accepted."""
        self.connections.add(connection)
        context, counters, ip = self._context, self._context.server.counters, get_host(connection.session.address)
        context.connections += 1
        context.connections_by_ip[ip] += 1
        counters.connections_opened += 1
        reason = self._reason_to_refuse(ip)
        counters.connections_refused += bool(reason)
        return reason

    def _reason_to_refuse(self, ip: str) -> str:
        context, settings = self._context, self._context.settings
        maximum = settings.broker_max_connections
        if 0 < maximum < context.connections:
            return f"the broker has {maximum} connections, the maximum of broker_max_connections"
        maximum = settings.broker_max_connections_per_ip
        if 0 < maximum < context.connections_by_ip[ip]:
            return f"{ip} has {maximum} connections, the maximum of broker_max_connections_per_ip"
        return ""

    def _remove(self, connection: PulsarConnection) -> None:
        self.connections.discard(connection)
        by_ip, ip = self._context.connections_by_ip, get_host(connection.session.address)
        self._context.connections -= 1
        by_ip[ip] -= 1
        if not by_ip[ip]:
            del by_ip[ip]
        if not self.connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    async def close(self) -> None:
        """Close the listener and its connections. Clients that do not take their last frames in time are cut off."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()
        if self.connections:
            self._all_closed = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_closed], timeout=_CLOSE_TIMEOUT_S)
        for connection in list(self.connections):
            connection.abort()


def _enable_tcp_keepalive(listening: socket.socket, interval_s: float) -> None:
    """Let the operating system close connections to machines that acknowledge nothing, also while they are not read.

    Accepted sockets inherit these options from the listening socket. See keepalive.py.
    """
    seconds = max(1, round(interval_s))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _TCP_PROBES)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_PROBES * seconds * 1000)
