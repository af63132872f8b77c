"""The server's end of a stream, as the service sees it.

As at the client's, tasks of the stream's own read and write, with pipes to the service. They end before the handler
does: gRPC's library gives the call's memory back then, whoever still uses it.

What one stream holds of what its client sent is two pieces that are on their way, one that was read, and what waits
for the service, which is a piece and one message of less; one message, while all streams hold too much. A larger one
takes a place of the server's (`admission.py`) until the service has it; meanwhile nothing more is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_wire.grpc_transport.admission import Admission
from magnetar_wire.grpc_transport.client_stream import MAX_WAITING_MESSAGES
from magnetar_wire.grpc_transport.options import GrpcOptions
from magnetar_wire.grpc_transport.quiet_grpc import grpc
from magnetar_wire.grpc_transport.wire import END, PIECE_BYTES, decoded, joined
from magnetar_wire.pipe import Pipe, PipedStream
from magnetar_wire.transport import Disconnected, Refusal, TransportError

__all__ = ["ServedStream"]

Context = grpc.aio.ServicerContext[bytes, bytes]


class ServedStream(PipedStream):
    def __init__(
        self, context: Context, admission: Admission, options: GrpcOptions, on_cancel: Callable[[], object]
    ) -> None:
        buffer_bytes = options.grpc_stream_buffer_bytes
        super().__init__(
            Pipe(MAX_WAITING_MESSAGES, min(PIECE_BYTES, buffer_bytes), admission.held_by_streams),
            Pipe(MAX_WAITING_MESSAGES, buffer_bytes, admission.held_by_streams),
        )
        self._context = context
        self._admission = admission
        self._on_cancel = on_cancel
        # The client broke off: whatever the service makes of it is no failure of the service's.
        self.client_gone = False
        loop = asyncio.get_running_loop()
        self._reading = loop.create_task(self._read())
        self._writing = loop.create_task(self._write())

    async def finish(self) -> None:
        """The client learns of it when the service has returned, since that is the status it gets."""
        self._finished = True

    def cancel(self) -> None:
        self._break_off("the stream was cancelled")

    async def flush(self) -> None:
        """Everything sent has been handed to gRPC, or the stream is broken."""
        self._finished = True
        self._outgoing.finish()
        await asyncio.wait([self._writing])

    async def close(self) -> None:
        self._break_pipes(Disconnected("the stream has ended"))
        # Given back first: the library cancels the handler a moment after the client has gone, which may be now.
        self._incoming.drop()
        self._outgoing.drop()
        for task in (self._reading, self._writing):
            task.cancel()
        await asyncio.wait([self._reading, self._writing])
        # A cancelled task knows its frames, and they this: what they hold is not to wait for the garbage collector.
        del self._reading, self._writing

    def _break_off(self, why: str) -> None:
        self._break_pipes(Disconnected(why))
        self._on_cancel()

    async def _read(self) -> None:
        try:
            while isinstance(piece := await self._context.read(), bytes):
                if piece == END:
                    self._incoming.finish()
                    return
                if len(piece) < PIECE_BYTES:
                    await self._incoming.put(decoded(piece))
                elif not await self._read_on(piece):
                    break
        except TransportError:
            return  # broken already, by whoever says why
        except Refusal as refusal:  # what it sent before may have been done
            self._break_off(str(refusal))
            return
        except grpc.aio.BaseError:
            pass
        # Without the empty message it did not finish. The library cancels the service as well, a moment later.
        self._client_has_gone()

    async def _read_on(self, first: bytes) -> bool:
        """A message of several pieces. False: it broke off."""
        place = await self._admission.enter()
        place.break_off = lambda: self._break_off("a message took too long to arrive while others waited")
        try:
            message = await joined(first, self._context.read)
            if message is None:
                return False
            self._admission.received(place)
            await self._incoming.put(decoded(message))
            await self._incoming.emptied()
            return True
        finally:
            self._admission.leave(place)

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
        self._break_pipes(Disconnected("the client has disconnected"))
