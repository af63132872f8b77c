"""A client's connection: the calls and streams on one channel (`channel.py`)."""

from __future__ import annotations

import asyncio

from magnetar_wire.grpc_transport.channel import ReconnectingChannel
from magnetar_wire.grpc_transport.client_stream import ClientStream
from magnetar_wire.grpc_transport.grpc_library import grpc
from magnetar_wire.grpc_transport.outcomes import to_transport_error
from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.grpc_transport.wire import PIECE_BYTES, method_metadata, split_pieces
from magnetar_wire.pipe import check_message_size
from magnetar_wire.transport import Disconnected, TransportError

__all__ = ["GrpcConnection"]

_Call = grpc.aio.UnaryUnaryCall[bytes, bytes] | grpc.aio.StreamUnaryCall[bytes, bytes]


class GrpcConnection:
    """A `Connection` over gRPC."""

    def __init__(self, address: str, settings: GrpcSettings) -> None:
        self.address = address
        self._channel = ReconnectingChannel(address, settings)
        self._calls: dict[_Call, None] = {}
        self._streams: dict[ClientStream, None] = {}

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        check_message_size(request)
        answer = await self._call(method, request, timeout_s)
        if isinstance(answer, TransportError):
            raise answer
        return answer

    async def _call(self, method: str, request: bytes, timeout_s: float) -> bytes | TransportError:
        """Return the answer or, because of tracebacks (channel.py), the error with which the call has ended."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        methods = await self._channel.connect(timeout_s)
        left_s, metadata = max(0.0, deadline - loop.time()), method_metadata(method)
        call: _Call
        if len(request) < PIECE_BYTES:
            call = methods.call(request, timeout=left_s, metadata=metadata)
        else:
            call = methods.call_in_pieces(split_pieces(request), timeout=left_s, metadata=metadata)
        self._calls[call] = None
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            return to_transport_error(error, method, self.address)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():  # the channel was closed, and the call with it
                return Disconnected(f"the connection to {self.address} was closed during {method}")
            raise cancelled.with_traceback(None)  # noqa: B904 (it is the same error)
        finally:
            del self._calls[call], call, methods

    def open_stream(self, method: str) -> ClientStream:
        stream = ClientStream(self._channel, method)
        self._streams[stream] = None
        stream.add_end_callback(lambda: self._streams.pop(stream, None))
        return stream

    def reset_backoff(self) -> None:
        self._channel.reset_backoff()

    async def close(self) -> None:
        self._channel.refuse_requests()
        for call in list(self._calls):
            call.cancel()
        for stream in list(self._streams):
            stream.fail(Disconnected(f"the connection to {self.address} was closed"))
        for stream in list(self._streams):
            await stream.wait_ended()
        await self._channel.close()
