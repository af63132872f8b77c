"""The client's end of a stream.

gRPC's library ends a call if a task that reads or writes it is cancelled. So a task of the stream reads and writes,
with a pipe between it and the caller in each direction, and a cancelled `receive` leaves the message in the pipe. The
pipes also let gRPC write one message while the caller prepares the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar_wire.grpc_transport.channel import ReconnectingChannel
from magnetar_wire.grpc_transport.grpc_library import grpc
from magnetar_wire.grpc_transport.outcomes import to_transport_error
from magnetar_wire.grpc_transport.wire import END, encode_message, method_metadata, split_pieces
from magnetar_wire.pipe import Pipe, PipedStream
from magnetar_wire.transport import Disconnected, TransportError

__all__ = ["MAX_WAITING_MESSAGES", "ClientStream"]

# The maximum number of messages that wait in one direction of a stream, at one end.
MAX_WAITING_MESSAGES: Final = 16

Call = grpc.aio.StreamStreamCall[bytes, bytes]


class ClientStream(PipedStream):
    """A stream over the channel. It connects first, in its own task."""

    def __init__(self, channel: ReconnectingChannel, method: str) -> None:
        self._channel = channel
        self._method = method
        buffer_bytes = channel.settings.grpc_stream_buffer_bytes
        super().__init__(Pipe(MAX_WAITING_MESSAGES, buffer_bytes), Pipe(MAX_WAITING_MESSAGES, buffer_bytes))
        # The server has ended the stream, so what is still being written ends by itself.
        self._has_ended = False
        # While it runs: not a local variable, because of tracebacks (channel.py).
        self._call: Call | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"stream {method}")

    async def finish(self) -> None:
        self._finished = True
        self._outgoing.finish()

    def cancel(self) -> None:
        self.fail(Disconnected("the stream was cancelled"))

    def fail(self, error: TransportError) -> None:
        self._fail_pipes(error)
        if not self._has_ended:
            self._task.cancel()

    def add_end_callback(self, callback: Callable[[], object]) -> None:
        self._task.add_done_callback(lambda _: callback())

    async def wait_ended(self) -> None:
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        """Own the call: the end of this task ends the call and both pipes."""
        try:
            connecting = self._channel.connect(self._channel.settings.grpc_connect_timeout_seconds)
            self._call = (await connecting).stream(metadata=method_metadata(self._method))
            sending = asyncio.get_running_loop().create_task(self._send(self._call))
            try:
                if (failure := await self._receive(self._call)) is not None:
                    self._fail_pipes(failure)
                else:
                    await asyncio.wait([sending])
            finally:
                self._call.cancel()
                sending.cancel()
                await asyncio.wait([sending])
        except TransportError as error:
            self._fail_pipes(error)
        except asyncio.CancelledError:
            pass  # by `fail`, and the pipes have its error
        finally:
            self._call = None
            self._fail_pipes(Disconnected("the stream has ended"))

    async def _receive(self, call: Call) -> TransportError | None:
        """Receive until the call ends. Return the error with which it has ended."""
        try:
            # Not `read`: once the server has ended the call, or a write has failed for that, it returns no message any
            # more, also if some were received before.
            async for message in call:
                await self._incoming.put(message)
        except grpc.aio.AioRpcError as error:
            return to_transport_error(error, self._method, self._channel.address)
        finally:
            del call
        self._has_ended = True
        self._incoming.finish()
        self._outgoing.fail(Disconnected("the server has ended the stream"))
        return None

    async def _send(self, call: Call) -> None:
        try:
            while (message := await self._outgoing.get()) is not None:
                for piece in split_pieces(encode_message(message)):
                    await call.write(piece)
            await call.write(END)
            await call.done_writing()
        except (TransportError, grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            pass  # the stream has ended, and its receiver gets the reason
        finally:
            del call
