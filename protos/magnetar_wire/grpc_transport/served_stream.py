"""The server's end of a stream, for the service.

As at the client's end, tasks of the stream read and write, with pipes between them and the service. The tasks end
before the handler does: then gRPC's library releases the memory of the call, even if it is still used.

One stream holds of its client's messages: two pieces in flight, one that was read, and the messages that wait for the
service, which are less than a piece and one message; only one message while all streams together hold too much. A
larger message takes a slot of the server (`admission.py`) until the service has received it. In the meantime nothing
more is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_wire.grpc_transport.admission import Admission
from magnetar_wire.grpc_transport.client_stream import MAX_WAITING_MESSAGES
from magnetar_wire.grpc_transport.grpc_library import grpc
from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.grpc_transport.wire import END, PIECE_BYTES, decode_message, join_pieces
from magnetar_wire.pipe import Pipe, PipedStream
from magnetar_wire.transport import Disconnected, Refusal, TransportError

__all__ = ["ServedStream"]

Context = grpc.aio.ServicerContext[bytes, bytes]


class ServedStream(PipedStream):
    """A stream of one client. `on_cancel` is called when this end cancels it."""

    def __init__(
        self, context: Context, admission: Admission, settings: GrpcSettings, on_cancel: Callable[[], object]
    ) -> None:
        buffer_bytes = settings.grpc_stream_buffer_bytes
        super().__init__(
            Pipe(MAX_WAITING_MESSAGES, min(PIECE_BYTES, buffer_bytes), admission.held_by_streams),
            Pipe(MAX_WAITING_MESSAGES, buffer_bytes, admission.held_by_streams),
        )
        self._context = context
        self._admission = admission
        self._on_cancel = on_cancel
        # The client disconnected, so the service's error is not a failure of the service.
        self.client_disconnected = False
        loop = asyncio.get_running_loop()
        self._reading = loop.create_task(self._read())
        self._writing = loop.create_task(self._write())

    async def finish(self) -> None:
        """Refuse further sends. The client gets the status, and so the end, when the service returns."""
        self._finished = True

    def cancel(self) -> None:
        self._cancel_stream("the stream was cancelled")

    async def flush(self, timeout_s: float | None) -> None:
        """Wait until all messages have been given to gRPC, or the stream is broken, or the timeout has passed."""
        self._finished = True
        self._outgoing.finish()
        await asyncio.wait([self._writing], timeout=timeout_s)

    async def close(self) -> None:
        """Release all messages, and end both tasks."""
        self._fail_pipes(Disconnected("the stream has ended"))
        # Released first: the library cancels the handler a moment after the client disconnects, which may be now.
        self._incoming.discard_messages()
        self._outgoing.discard_messages()
        for task in (self._reading, self._writing):
            task.cancel()
        await asyncio.wait([self._reading, self._writing])
        # A cancelled task refers to its frames, and they to this object. Without this, the messages would be freed by
        # the garbage collector only.
        del self._reading, self._writing

    def _cancel_stream(self, why: str) -> None:
        self._fail_pipes(Disconnected(why))
        self._on_cancel()

    async def _read(self) -> None:
        try:
            while isinstance(piece := await self._context.read(), bytes):
                if piece == END:
                    self._incoming.finish()
                    return
                if len(piece) < PIECE_BYTES:
                    await self._incoming.put(decode_message(piece))
                elif not await self._read_on(piece):
                    break
        except TransportError:
            return  # already ended, with the reason
        except Refusal as refusal:  # requests that were sent before may have been done
            self._cancel_stream(str(refusal))
            return
        except grpc.aio.BaseError:
            pass
        # Without the empty message the client did not finish. The library cancels the service as well, a moment later.
        self._on_client_disconnected()

    async def _read_on(self, first: bytes) -> bool:
        """Receive a message of several pieces. Return False if the client disconnected."""
        slot = await self._admission.acquire_slot()
        slot.cancel_reception = lambda: self._cancel_stream("a message took too long to arrive while others waited")
        try:
            message = await join_pieces(first, self._context.read)
            if message is None:
                return False
            self._admission.extend_grace(slot)
            await self._incoming.put(decode_message(message))
            await self._incoming.wait_emptied()
            return True
        finally:
            self._admission.release_slot(slot)

    async def _write(self) -> None:
        try:
            while (message := await self._outgoing.get()) is not None:
                await self._context.write(message)
        except TransportError:
            pass  # already ended, with the reason
        except grpc.aio.BaseError:
            self._on_client_disconnected()

    def _on_client_disconnected(self) -> None:
        self.client_disconnected = True
        self._fail_pipes(Disconnected("the client has disconnected"))
