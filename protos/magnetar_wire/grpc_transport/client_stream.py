"""The client's end of a stream.

gRPC's library breaks a call off when whoever reads from it or writes to it is cancelled. So a task of the stream's own
does both, a pipe stands between it and the caller on either way, and a cancelled `receive` leaves the message where it
is. The pipes also let gRPC write one message while the caller makes the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from magnetar_wire.grpc_transport.outcomes import met_as
from magnetar_wire.grpc_transport.quiet_grpc import grpc
from magnetar_wire.grpc_transport.wire import END, SERVICE, STREAM, encoded, method_metadata, pieces
from magnetar_wire.pipe import Pipe, PipedStream
from magnetar_wire.transport import Disconnected, TransportError

if TYPE_CHECKING:
    from magnetar_wire.grpc_transport.connection import GrpcConnection

__all__ = ["MAX_WAITING_MESSAGES", "ClientStream"]

# How many messages may wait in one direction of a stream, at one end.
MAX_WAITING_MESSAGES: Final = 16

Call = grpc.aio.StreamStreamCall[bytes, bytes]


class ClientStream(PipedStream):
    def __init__(self, connection: GrpcConnection, method: str) -> None:
        self._connection = connection
        self._method = method
        buffer_bytes = connection.options.grpc_stream_buffer_bytes
        super().__init__(Pipe(MAX_WAITING_MESSAGES, buffer_bytes), Pipe(MAX_WAITING_MESSAGES, buffer_bytes))
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"stream {method}")

    async def finish(self) -> None:
        self._finished = True
        self._outgoing.finish()

    def cancel(self) -> None:
        self.breaks(Disconnected("the stream was cancelled"))

    def breaks(self, error: TransportError) -> None:
        self._break_pipes(error)
        self._task.cancel()

    def when_ended(self, callback: Callable[[], object]) -> None:
        self._task.add_done_callback(lambda _: callback())

    async def wait_ended(self) -> None:
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        """Owns the call: whatever ends this ends that, and both pipes."""
        try:
            channel = await self._connection.connected(self._connection.options.grpc_connect_timeout_seconds)
            call: Call = channel.stream_stream(f"/{SERVICE}/{STREAM}")(metadata=method_metadata(self._method))
            sending = asyncio.get_running_loop().create_task(self._send(call))
            try:
                await self._receive(call)
            finally:
                call.cancel()
                sending.cancel()
                await asyncio.wait([sending])
        except TransportError as error:
            self._break_pipes(error)
        finally:
            self._break_pipes(Disconnected("the stream has ended"))

    async def _receive(self, call: Call) -> None:
        try:
            while isinstance(message := await call.read(), bytes):
                await self._incoming.put(message)
        except grpc.aio.AioRpcError as error:
            raise met_as(error, self._method, self._connection.address) from None
        self._incoming.finish()
        self._outgoing.breaks(Disconnected("the server has ended the stream"))

    async def _send(self, call: Call) -> None:
        try:
            while (message := await self._outgoing.get()) is not None:
                for piece in pieces(encoded(message)):
                    await call.write(piece)
            await call.write(END)
            await call.done_writing()
        except (TransportError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream has ended, and its receiver is told why
