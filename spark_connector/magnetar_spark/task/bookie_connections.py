"""A worker's connections to bookies: made when a task reads from one, kept for the worker's next tasks.

Spark forks its Python workers off a daemon that never used gRPC, and gives a worker one task after the other. So the
connections are made in the worker, by the first task that asks, and live on the loop thread that the SDK has for a
process (magnetar/_event_loop.py), which also sees to it that a worker may fork. Between tasks they stay for a few
seconds, since the next task comes at once while a query runs; then they are closed, and a worker that waits for its
next query holds none.
"""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Final

from google.protobuf.message import DecodeError

from magnetar._event_loop import background
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest
from magnetar_wire.process.memory_tuning import keep_freed_memory
from magnetar_wire.transport import Connection, Failed, NotReached, Transport

__all__ = ["BookieCalls", "of_this_worker"]

_KEPT_S: Final = 10.0


class BookieCalls:
    """Belongs to one loop, and is used on that."""

    def __init__(self, transport: Transport, kept_s: float = _KEPT_S) -> None:
        self.transport = transport
        self._kept_s = kept_s
        self._connections: dict[str, Connection] = {}
        self._tasks = 0
        self._closing: asyncio.TimerHandle | None = None
        self._suspended = False

    @property
    def connections(self) -> int:
        return len(self._connections)

    def enter(self) -> None:
        """A task uses the connections."""
        self._tasks += 1
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def leave(self) -> None:
        self._tasks -= 1
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(self._kept_s, lambda: loop.create_task(self.close()))

    async def ask(self, address: str, request: ReadRequest, timeout_s: float) -> ReadAnswer:
        """Raises `TransportError`."""
        if not address:
            raise NotReached("its address is unknown: it was not registered when the query was planned")
        if self._suspended:
            raise NotReached("the process is forking")
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self.transport.connect(address)
        answer = await connection.call("read", request.SerializeToString(), timeout_s=timeout_s)
        try:
            return ReadAnswer.FromString(answer)
        except DecodeError as error:
            raise Failed(f"the answer of the bookie at {address} can't be decoded: {error}") from None

    async def close(self) -> None:
        """Those of now; whoever asks later has others."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    # Around a fork, and at the process' end: see magnetar/_event_loop.py.

    async def _suspend(self) -> None:
        self._suspended = True
        await self.close()

    def _resume(self) -> None:
        self._suspended = False

    def _forked(self) -> None:
        global _mine
        _mine = None

    def _close_at_exit(self, timeout_s: float) -> None:
        background.run(self.close(), timeout_s)


_mine: tuple[int, BookieCalls] | None = None


def of_this_worker() -> BookieCalls:
    """One for all tasks of this process."""
    global _mine
    if _mine is None or _mine[0] != os.getpid():
        # gRPC takes 0.1 s to import: not where a query is planned, but here.
        from magnetar_wire.grpc_transport import GrpcTransport

        # A fifth of the CPU that reading takes is otherwise spent on giving answers' memory back, and taking it anew.
        keep_freed_memory()
        calls = BookieCalls(GrpcTransport())
        background.enter(calls)
        # PySpark's worker looks through all objects for garbage after each task: 0.046 s of CPU, with all that was
        # imported by then, as much as 100,000 rows take. What is there now, once in its life, is left out of that.
        gc.freeze()
        _mine = os.getpid(), calls
    return _mine[1]
