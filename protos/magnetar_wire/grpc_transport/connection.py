"""A client's connection: one gRPC channel to one address.

**What was never handed to a connection** is `NotReached`, and gRPC's own statuses can't tell it: UNAVAILABLE is said of
an attempt to connect that failed as of a connection that broke with the request half done. So a request waits here
until the channel says that it is connected, and is handed to gRPC only then, without an `await` in between. Whatever
happens before is `NotReached`; whatever happens after is not, even where it was the same trouble seen a moment later.

While the last attempt to connect has failed and the next one is not due yet, requests fail at once: whoever calls has
other replicas to go to. A connection is made when first used, and looks after itself from then on, also while unused.

Everything here belongs to the loop on which it was first used.
"""

from __future__ import annotations

import asyncio

from magnetar_wire.grpc_transport.channel_options import client_arguments
from magnetar_wire.grpc_transport.client_stream import ClientStream
from magnetar_wire.grpc_transport.options import GrpcOptions
from magnetar_wire.grpc_transport.outcomes import met_as
from magnetar_wire.grpc_transport.quiet_grpc import grpc
from magnetar_wire.grpc_transport.wire import CALL, PIECE_BYTES, SERVICE, method_metadata, pieces
from magnetar_wire.pipe import check_size
from magnetar_wire.transport import Disconnected, NotReached

__all__ = ["GrpcConnection"]

_Call = grpc.aio.UnaryUnaryCall[bytes, bytes] | grpc.aio.StreamUnaryCall[bytes, bytes]
_READY = grpc.ChannelConnectivity.READY
_IDLE = grpc.ChannelConnectivity.IDLE
_FAILED = grpc.ChannelConnectivity.TRANSIENT_FAILURE


class GrpcConnection:
    def __init__(self, address: str, options: GrpcOptions) -> None:
        self.address = address
        self.options = options
        self._closed = False
        self._channel: grpc.aio.Channel | None = None
        self._ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] | None = None
        # The same for what travels in several pieces.
        self._ask_in_pieces: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] | None = None
        # The attempt that is being waited for, by however many requests, or by none any more: so it returns why it
        # failed, and raises nothing that nobody might see.
        self._connecting: asyncio.Task[NotReached | None] | None = None
        self._calls: dict[_Call, None] = {}
        self._streams: dict[ClientStream, None] = {}
        # Channels that others took the place of.
        self._closing: dict[asyncio.Task[None], None] = {}

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        check_size(request)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        await self.connected(timeout_s)
        assert self._ask is not None
        assert self._ask_in_pieces is not None
        left_s, metadata = max(0.0, deadline - loop.time()), method_metadata(method)
        call: _Call
        if len(request) < PIECE_BYTES:
            call = self._ask(request, timeout=left_s, metadata=metadata)
        else:
            call = self._ask_in_pieces(pieces(request), timeout=left_s, metadata=metadata)
        self._calls[call] = None
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise met_as(error, method, self.address) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():  # its channel was closed, and with it the call, not we
                raise Disconnected(f"the connection to {self.address} was closed during {method}") from None
            raise
        finally:
            del self._calls[call]

    def open_stream(self, method: str) -> ClientStream:
        stream = ClientStream(self, method)
        self._streams[stream] = None
        stream.when_ended(lambda: self._streams.pop(stream, None))
        return stream

    def reset_backoff(self) -> None:
        """gRPC's pause can't be cut short; but a new channel has none, and one that is not connected loses nothing."""
        if self._closed or self._channel is None or self._channel.get_state() in (_READY, _IDLE):
            return
        old, self._channel, self._ask, self._ask_in_pieces = self._channel, None, None, None
        if self._connecting is not None:
            self._connecting.cancel()  # whoever waits for it begins anew
        closing = asyncio.get_running_loop().create_task(old.close())
        self._closing[closing] = None
        closing.add_done_callback(lambda _: self._closing.pop(closing))

    async def close(self) -> None:
        self._closed = True
        for call in list(self._calls):
            call.cancel()
        for stream in list(self._streams):
            stream.breaks(Disconnected(f"the connection to {self.address} was closed"))
        for stream in list(self._streams):
            await stream.wait_ended()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        while self._closing:
            await asyncio.wait(list(self._closing))
        if self._channel is not None:
            await self._channel.close()

    async def connected(self, timeout_s: float) -> grpc.aio.Channel:
        """The channel, which is connected at this moment. Raises `NotReached`."""
        if self._closed:
            raise NotReached(f"the connection to {self.address} is closed")
        channel = self._present_channel()
        if channel.get_state(try_to_connect=True) is not _READY:
            channel = await self._wait_connected(min(timeout_s, self.options.grpc_connect_timeout_s))
        return channel

    def _present_channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self.address, options=client_arguments(self.options))
            self._ask = self._channel.unary_unary(f"/{SERVICE}/{CALL}")
            self._ask_in_pieces = self._channel.stream_unary(f"/{SERVICE}/{CALL}")
        return self._channel

    async def _wait_connected(self, timeout_s: float) -> grpc.aio.Channel:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            if self._connecting is None or self._connecting.done():
                self._connecting = loop.create_task(_connect(self._present_channel(), self.address))
            attempt = self._connecting
            await asyncio.wait([attempt], timeout=max(0.0, deadline - loop.time()))
            if self._closed:
                raise NotReached(f"the connection to {self.address} was closed")
            if not attempt.done():
                raise NotReached(f"{self.address} could not be reached within {timeout_s:.3g} s")
            if not attempt.cancelled() and (error := attempt.result()) is not None:
                raise NotReached(str(error))
            # It was, when the attempt ended; others had their turn since, and there may be another channel.
            channel = self._present_channel()
            if channel.get_state() is _READY:
                return channel


async def _connect(channel: grpc.aio.Channel, address: str) -> NotReached | None:
    while (state := channel.get_state(try_to_connect=True)) is not _READY:
        if state is _FAILED:
            return NotReached(f"{address} does not answer")
        await channel.wait_for_state_change(state)
    return None
