"""How a ZooKeeper session begins at a server that is only just starting."""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from magnetar_metadata.store import SessionState
from magnetar_metadata.zookeeper.kazoo_session import KazooSession
from magnetar_wire.clock import SystemClock
from tests.running import run

# Longer than a test may take.
_SESSION_TIMEOUT_S: Final = 300.0
_CONNECT_TIMEOUT_S: Final = 60.0
_SESSION_ID: Final = 7


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


def test_a_server_that_lost_the_request_for_a_session_is_asked_again_long_before_the_session_time_out() -> None:
    """OWN-2: a server that was started again is used as soon as it answers."""

    async def body() -> None:
        starting = _StartingServer(silent=2)
        server = await asyncio.start_server(starting.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        session = KazooSession(f"{host}:{port}", SystemClock(), _SESSION_TIMEOUT_S)
        try:
            await session.start(_CONNECT_TIMEOUT_S)
            assert session.session.state is SessionState.CONNECTED
            assert session.session.id == _SESSION_ID
            assert starting.connections == 3
        finally:
            await session.close()
            server.close()

    run(body())
