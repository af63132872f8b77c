"""The server's end of a stream, as the service sees it.

As at the client's, tasks of the stream's own read and write, with pipes to the service. They end before the handler
does: gRPC's library gives the call's memory back then, whoever still uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_wire.grpc_transport.client_stream import MAX_WAITING_MESSAGES
from magnetar_wire.grpc_transport.options import GrpcOptions
from magnetar_wire.grpc_transport.quiet_grpc import grpc
from magnetar_wire.grpc_transport.wire import END, decoded
from magnetar_wire.pipe import Pipe, check_size
from magnetar_wire.transport import Disconnected, TransportError

__all__ = ["ServedStream"]

Context = grpc.aio.ServicerContext[bytes, bytes]


class ServedStream:
    def __init__(self, context: Context, options: GrpcOptions, on_cancel: Callable[[], object]) -> None:
        self._context = context
        self._on_cancel = on_cancel
        self._incoming = Pipe(MAX_WAITING_MESSAGES, options.grpc_stream_buffer_bytes)
        self._outgoing = Pipe(MAX_WAITING_MESSAGES, options.grpc_stream_buffer_bytes)
        self._finished = False
        # The client broke off: whatever the service makes of it is no failure of the service's.
        self.client_gone = False
        loop = asyncio.get_running_loop()
        self._reading = loop.create_task(self._read())
        self._writing = loop.create_task(self._write())

    async def send(self, message: bytes) -> None:
        check_size(message)
        if self._finished:
            raise RuntimeError("a stream was sent to after it was finished")
        await self._outgoing.put(message)

    async def receive(self) -> bytes | None:
        return await self._incoming.get()

    async def finish(self) -> None:
        """The client learns of it when the service has returned, since that is the status it gets."""
        self._finished = True

    def cancel(self) -> None:
        self._breaks(Disconnected("the stream was cancelled"))
        self._on_cancel()

    async def flush(self) -> None:
        """Everything sent has been handed to gRPC, or the stream is broken."""
        self._finished = True
        self._outgoing.finish()
        await asyncio.wait([self._writing])

    async def close(self) -> None:
        self._breaks(Disconnected("the stream has ended"))
        for task in (self._reading, self._writing):
            task.cancel()
        await asyncio.wait([self._reading, self._writing])

    def _breaks(self, error: TransportError) -> None:
        self._incoming.breaks(error)
        self._outgoing.breaks(error)

    async def _read(self) -> None:
        try:
            while isinstance(message := await self._context.read(), bytes):
                if message == END:
                    self._incoming.finish()
                    return
                await self._incoming.put(decoded(message))
        except TransportError:
            return  # broken already, by whoever says why
        except grpc.aio.BaseError:
            pass
        # Without the empty message it did not finish. The library cancels the service as well, a moment later.
        self._client_has_gone()

    async def _write(self) -> None:
        try:
            while (message := await self._outgoing.get()) is not None:
                await self._context.write(message)
        except TransportError:
            pass  # broken already, by whoever says why
        except grpc.aio.BaseError:
            self._client_has_gone()

    def _client_has_gone(self) -> None:
        self.client_gone = True
        self._breaks(Disconnected("the client has gone"))
