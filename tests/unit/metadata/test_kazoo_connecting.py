"""How a ZooKeeper session begins at a server that is only just starting."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Final

import pytest
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect

from magnetar_metadata.store import SessionState
from magnetar_metadata.zookeeper import kazoo_session
from magnetar_metadata.zookeeper.kazoo_session import KazooSession
from magnetar_wire.clock import SystemClock
from tests.running import until

# Longer than a test may take.
_SESSION_TIMEOUT_S: Final = 300.0
_CONNECT_TIMEOUT_S: Final = 60.0
_SESSION_ID: Final = 7
_FIRST_PATIENCE_S: Final = 0.25


class _StartingServer:
    """Takes connections, and answers the first of them nothing."""

    def __init__(self, silent: int) -> None:
        self._silent = silent
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.connections > self._silent:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)
            answer = struct.pack(">iiqi", 0, int(_SESSION_TIMEOUT_S * 1000), _SESSION_ID, 16) + bytes(16) + b"\0"
            writer.write(struct.pack(">i", len(answer)) + answer)
        await reader.read()
        writer.close()


async def test_unanswered_connect_request_is_repeated_before_session_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OWN-2: a server that was started again is used as soon as it answers, also one that needs longer to answer."""
    waits_s: list[float] = []
    invoke = ConnectionHandler._invoke

    def noting(connection: ConnectionHandler, timeout: float, request: Any, xid: int | None = None) -> Any:
        if isinstance(request, Connect):
            waits_s.append(timeout)
        return invoke(connection, timeout, request, xid)

    monkeypatch.setattr(ConnectionHandler, "_invoke", noting)
    monkeypatch.setattr(kazoo_session, "_FIRST_PATIENCE_S", _FIRST_PATIENCE_S)

    starting = _StartingServer(silent=2)
    server = await asyncio.start_server(starting.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    session = KazooSession(f"{host}:{port}", SystemClock(), _SESSION_TIMEOUT_S)
    try:
        await session.start(_CONNECT_TIMEOUT_S)
        assert session.session.state is SessionState.CONNECTED
        assert session.session.id == _SESSION_ID
        assert waits_s[:3] == [_FIRST_PATIENCE_S, 2 * _FIRST_PATIENCE_S, 4 * _FIRST_PATIENCE_S]
        assert starting.connections == len(waits_s) >= 3
        waits_before = len(waits_s)
        session._handler.cut()
        await until(lambda: len(waits_s) > waits_before, "a session is requested again")
        assert waits_s[waits_before] == _FIRST_PATIENCE_S
    finally:
        await session.close()
        server.close()


def test_kazoo_waits_for_its_sockets() -> None:
    """Replaces kazoo's own wait."""
    here, there = socket.socketpair()
    handler = kazoo_session._Handler()
    with here, there:
        assert handler.select([here], [], [], 0) == ([], [], [])
        assert handler.select([], [here], [], 0.01) == ([], [here], [])
        assert handler.select([here], [here], [], None) == ([], [here], [])
        there.send(b"x")
        assert handler.select([here, there], [], [], None) == ([here], [], [])
        assert handler.select([here], [here], [], 1) == ([here], [here], [])
        here.recv(1)
        there.shutdown(socket.SHUT_RDWR)
        assert handler.select([here], [here], [], 1) == ([here], [here], [])
    with pytest.raises(TypeError, match="descriptor"):
        handler.select([here], [], [], 0)
