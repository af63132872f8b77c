"""A client's connections: one to each address, and on it one stream of each kind.

A connection or stream is opened when it is first needed, and again after it broke. Connections to brokers' addresses
are closed when no stream uses them any more.

**Closing.** When the client has closed its producers and consumers, brokers end its streams, and only then connections
are closed. If a stream is cancelled instead, gRPC has events of it a moment later, when the application may have
closed its loop: another loop of the process would get them, and report errors.

**Fork.** `suspend` closes everything before the process forks, and nothing is opened until `resume`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError

from magnetar._connections.broker_stream import BrokerStream
from magnetar._connections.endpoint_check import describe_endpoints
from magnetar._errors import check_request_size, from_problem, from_transport
from magnetar._options import KEEP_ALIVE_INTERVAL_S
from magnetar.exceptions import AlreadyClosed, ConnectError, UnknownError
from magnetar_protos.broker_pb2 import Problem
from magnetar_wire.clock import Clock
from magnetar_wire.transport import Connection, Disconnected, Transport, TransportError

__all__ = ["ConnectionPool", "LazyGrpcTransport"]

S = TypeVar("S", bound=BrokerStream[Any])
A = TypeVar("A")

# How long brokers have to end the streams of a client that closes its connections.
_FINISH_S: Final = 0.5


class ConnectionPool:
    def __init__(self, transport: Transport, service_addresses: Sequence[str], clock: Clock) -> None:
        # Brokers whose connections stay open, because lookups go to them.
        self.service_addresses = tuple(service_addresses)
        self.closed = False
        self._transport = transport
        self._clock = clock
        self._connections: dict[str, Connection] = {}
        self._streams: dict[tuple[str, str], BrokerStream[Any]] = {}
        # Broken streams whose tasks may still run.
        self._ending_streams: list[BrokerStream[Any]] = []
        # Cancelled tasks, and tasks that close connections, while they still run.
        self._ending_tasks: dict[asyncio.Task[Any], None] = {}
        # Calls in flight, by address.
        self._calls: dict[str, int] = {}
        # Not set while the process forks.
        self._running = asyncio.Event()
        self._running.set()

    async def wait_resumed(self) -> None:
        """Return at once, or when `resume` is called if the pool is suspended."""
        await self._running.wait()

    async def connection(self, address: str) -> Connection:
        """Return the connection to this address. It connects when it is used."""
        await self._running.wait()
        return self._connection(address)

    def stream(self, address: str, kind: type[S]) -> S:
        """Return the stream of this kind to this address. It is not broken, as far as is known."""
        found: Any = self._streams.get((address, kind.method))
        if found is None or found.broken is not None:
            opened = kind(self._connection(address).open_stream(kind.method), address)
            if found is not None:
                self._ending_streams.append(found)
            found = self._streams[address, kind.method] = opened
            self._drop_unused()
        stream: S = found
        return stream

    async def call(self, address: str, method: str, request: bytes, parse: Callable[[bytes], A], timeout_s: float) -> A:
        """Send a request to a broker, and return its answer. Raise the error that the answer contains."""
        check_request_size(request, method)
        connection = self._connection(address)
        self._calls[address] = self._calls.get(address, 0) + 1
        try:
            answer: Any = parse(await connection.call(method, request, timeout_s=timeout_s))
        except TransportError as error:
            raise from_transport(error) from error
        except DecodeError as error:
            raise UnknownError(f"the answer to {method} from {address} can't be decoded: {error}") from error
        finally:
            self._calls[address] -= 1
            if not self._calls[address]:
                del self._calls[address]
        if answer.HasField("problem"):
            problem: Problem = answer.problem
            raise from_problem(problem)
        parsed: A = answer
        return parsed

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task. The pool waits for its end before it closes the connections."""
        if not task.done():
            task.cancel()
            self._keep_until_ended(task)

    async def close(self) -> None:
        """Close all streams and connections. Their channels are notified, and calls in flight raise an error."""
        self.closed = True
        self._running.set()
        await self._finish_streams()
        await self._disconnect()

    async def suspend(self) -> None:
        """Close all streams and connections, and open none until `resume`."""
        self._running.clear()
        await self._disconnect()

    def resume(self) -> None:
        self._running.set()

    def _connection(self, address: str) -> Connection:
        if self.closed:
            raise AlreadyClosed("the client is closed")
        if not self._running.is_set():
            raise ConnectError("the process is about to fork: the client reconnects afterwards")
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = self._transport.connect(address)
        return found

    async def _finish_streams(self) -> None:
        """Have brokers end all streams, and wait for that."""
        streams = list(self._streams.values())

        def break_off() -> None:
            for stream in streams:
                stream.break_off(Disconnected(f"{stream.address} has not ended the stream within {_FINISH_S:g} s"))

        timer = self._clock.call_later(_FINISH_S, break_off)
        try:
            for stream in streams:
                await stream.finish()
            for stream in streams:
                await stream.wait_ended()
        finally:
            timer.cancel()

    async def _disconnect(self) -> None:
        streams = [*self._ending_streams, *self._streams.values()]
        self._streams, self._ending_streams = {}, []
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.close()
        for stream in streams:
            await stream.wait_ended()
        if self._ending_tasks:
            await asyncio.wait(list(self._ending_tasks))

    def _drop_unused(self) -> None:
        """Close connections that no stream and no call uses, except those to the service's addresses.

        A broker that restarts may have another address each time, and a client may live longer than all of them.
        """
        for key, stream in list(self._streams.items()):
            if stream.broken is not None:
                self._ending_streams.append(self._streams.pop(key))
        self._ending_streams = [stream for stream in self._ending_streams if not stream.ended]
        with_stream = {address: None for address, _ in self._streams}
        for address in list(self._connections):
            if not (address in with_stream or address in self._calls or address in self.service_addresses):
                closing = self._connections.pop(address).close()
                self._keep_until_ended(asyncio.get_running_loop().create_task(closing))

    def _keep_until_ended(self, task: asyncio.Task[Any]) -> None:
        self._ending_tasks[task] = None
        task.add_done_callback(lambda _: self._ending_tasks.pop(task))


class LazyGrpcTransport:
    """The gRPC transport, imported at the first connection: that import takes longer than the rest of the SDK."""

    def __init__(self, keep_alive_interval_s: float = KEEP_ALIVE_INTERVAL_S) -> None:
        """A broker that is silent for `keep_alive_interval_s` is pinged, and has the same time to answer."""
        self._keep_alive_ms = round(keep_alive_interval_s * 1000)
        self._transport: Any = None

    def connect(self, address: str) -> Any:
        self.load()
        return self._transport.connect(address)

    def load(self) -> None:
        """Import gRPC. Any thread may call this; a thread of the application does, so that the loop does not block."""
        if self._transport is None:
            from magnetar_wire.grpc_transport import GrpcSettings, GrpcTransport

            self._transport = GrpcTransport(
                GrpcSettings(grpc_keepalive_time_ms=self._keep_alive_ms, grpc_keepalive_timeout_ms=self._keep_alive_ms)
            )

    async def describe_endpoints(self, addresses: Sequence[str], *, failed: bool) -> str:
        return await describe_endpoints(addresses, failed=failed)

    async def listen(self, address: str, service: Any) -> Any:
        raise NotImplementedError("a client does not listen")
