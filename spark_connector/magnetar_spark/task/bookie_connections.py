"""A worker's connections to bookies, which its tasks share.

Spark forks its Python workers from a daemon that never used gRPC, and gives a worker one task after the other. So the
first task that reads from a bookie creates the connection. It belongs to the loop that the SDK has in each process
(magnetar/_threads/event_loop.py), which also allows the worker to fork. While a query runs, the next task starts at
once, so connections are closed a few seconds after the last task: a worker that waits for its next query has none.
"""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Final

from google.protobuf.message import DecodeError

from magnetar._threads.event_loop import background
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest
from magnetar_wire.process.memory_tuning import keep_freed_memory
from magnetar_wire.transport import Connection, Failed, NotReached, Transport

__all__ = ["BookieConnections", "get_worker_connections"]

_IDLE_TIMEOUT_S: Final = 10.0


class BookieConnections:
    """Belongs to one loop, and is used on it."""

    def __init__(self, transport: Transport, idle_timeout_s: float = _IDLE_TIMEOUT_S) -> None:
        self._transport = transport
        self._idle_timeout_s = idle_timeout_s
        self._connections: dict[str, Connection] = {}
        # The number of tasks that use the connections.
        self._tasks = 0
        self._closing: asyncio.TimerHandle | None = None
        self._suspended = False

    def acquire(self) -> None:
        """Add a task that uses the connections."""
        self._tasks += 1
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def release(self) -> None:
        """Remove a task. After the last one, connections are closed when they were idle for a while."""
        self._tasks -= 1
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(self._idle_timeout_s, lambda: loop.create_task(self.close()))

    async def read(self, address: str, request: ReadRequest, timeout_s: float) -> ReadAnswer:
        """Read entries from the bookie at the address. Raises `TransportError`."""
        if not address:
            raise NotReached("its address is unknown: it was not registered when the query was planned")
        if self._suspended:
            raise NotReached("the process is forking")
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self._transport.connect(address)
        answer = await connection.call("read", request.SerializeToString(), timeout_s=timeout_s)
        try:
            return ReadAnswer.FromString(answer)
        except DecodeError as error:
            raise Failed(f"the answer of the bookie at {address} can't be decoded: {error}") from None

    async def close(self) -> None:
        """Close all connections. Later reads open new ones."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    # Around a fork, and at the process's exit: see magnetar/_threads/event_loop.py.

    async def _suspend(self) -> None:
        self._suspended = True
        await self.close()

    def _resume(self) -> None:
        self._suspended = False

    def _forked(self) -> None:
        global _of_process
        _of_process = None

    def _close_at_exit(self, timeout_s: float) -> None:
        background.run(self.close(), timeout_s)


# The id of the process, and its connections.
_of_process: tuple[int, BookieConnections] | None = None


def get_worker_connections() -> BookieConnections:
    """Return the connections of this process, which are created at the first call."""
    global _of_process
    if _of_process is None or _of_process[0] != os.getpid():
        # Importing gRPC takes 0.1 s, which a process that only plans a query does not need.
        from magnetar_wire.grpc_transport import GrpcTransport

        # Otherwise a fifth of the CPU for reading is spent on returning the answers' memory, and allocating it again.
        keep_freed_memory()
        connections = BookieConnections(GrpcTransport())
        background.enter(connections)
        # PySpark's worker runs a full garbage collection after each task. With all imported modules that takes 0.046 s
        # of CPU, as much as 100,000 rows. Objects that exist now are left out of it.
        gc.freeze()
        _of_process = os.getpid(), connections
    return _of_process[1]
