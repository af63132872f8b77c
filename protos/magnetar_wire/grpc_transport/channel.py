"""A client's gRPC channel to one address, which reconnects by itself.

**Requests that were never given to a connection** are `NotReached`. gRPC's own statuses can't show it: UNAVAILABLE may
be a failed attempt to connect, or a connection that broke in the middle of a request. So a request waits here until the
channel is connected, and is given to gRPC only then, without an `await` in between. Every failure before that is
`NotReached`; no failure after it is, even if it has the same cause, noticed a moment later.

After a failed attempt to connect, and until the next one is due, requests fail at once: the caller has other replicas.
A connection is made at the first use. From then on it reconnects by itself, also while it is unused.

Everything here belongs to the event loop of the first use.

**Tracebacks.** A process can fork only when all gRPC objects of its clients are freed: as long as there is one, gRPC's
threads run, and a child that connects waits for them in vain. An application, or a producer that is reopened, may hold
an error of a connection for long, and its traceback holds the local variables of every function that the error passed.
So when a connection is closed, it refers to no gRPC object, and errors leave no function that has one as a local
variable. Where gRPC itself raises, the error is returned instead, or its traceback is cut.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from magnetar_wire.grpc_transport.channel_arguments import client_arguments
from magnetar_wire.grpc_transport.grpc_library import grpc
from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.grpc_transport.wire import CALL, SERVICE, STREAM
from magnetar_wire.transport import NotReached

__all__ = ["Methods", "ReconnectingChannel"]

_READY: Final = grpc.ChannelConnectivity.READY
_IDLE: Final = grpc.ChannelConnectivity.IDLE
_FAILED: Final = grpc.ChannelConnectivity.TRANSIENT_FAILURE


@dataclass(frozen=True, slots=True)
class Methods:
    """The gRPC methods of one channel."""

    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    # The same method, for requests in several pieces.
    call_in_pieces: grpc.aio.StreamUnaryMultiCallable[bytes, bytes]
    stream: grpc.aio.StreamStreamMultiCallable[bytes, bytes]


class ReconnectingChannel:
    """The channel to one address. It is created at the first use, and replaced by `reset_backoff`."""

    def __init__(self, address: str, settings: GrpcSettings) -> None:
        self.address = address
        self.settings = settings
        self._refusing = False
        self._channel: grpc.aio.Channel | None = None
        # The methods of `_channel`.
        self._methods: Methods | None = None
        # The attempt to connect that requests wait for. It may have no waiter, so it returns its error, and does not
        # raise it.
        self._connecting: asyncio.Task[NotReached | None] | None = None
        # Channels that were replaced.
        self._closing: dict[asyncio.Task[None], None] = {}

    async def connect(self, timeout_s: float) -> Methods:
        """Return the methods of the channel, which is connected at this moment. Raises `NotReached`."""
        if self._refusing:
            raise NotReached(f"the connection to {self.address} is closed")
        if self._open_channel().get_state(try_to_connect=True) is not _READY:
            await self._wait_connected(min(timeout_s, self.settings.grpc_connect_timeout_seconds))
        assert self._methods is not None
        return self._methods

    def reset_backoff(self) -> None:
        """Replace the channel if it is not connected: gRPC's pause can't be shorten, but a new channel has none."""
        if self._refusing or self._channel is None or self._channel.get_state() in (_READY, _IDLE):
            return
        old, self._channel, self._methods = self._channel, None, None
        if self._connecting is not None:
            self._connecting.cancel()  # its waiters start another attempt
        closing = asyncio.get_running_loop().create_task(old.close())
        self._closing[closing] = None
        closing.add_done_callback(lambda _: self._closing.pop(closing))

    def refuse_requests(self) -> None:
        """Raise `NotReached` for all further requests, and for those that wait for the connection."""
        self._refusing = True

    async def close(self) -> None:
        """Close the channel. Its calls must have ended, and further ones must be refused."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        while self._closing:
            await asyncio.wait(list(self._closing))
        channel, self._channel, self._methods, self._connecting = self._channel, None, None, None
        if channel is not None:
            await channel.close()

    def _open_channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            channel = grpc.aio.insecure_channel(self.address, options=client_arguments(self.settings))
            self._channel = channel
            self._methods = Methods(
                channel.unary_unary(f"/{SERVICE}/{CALL}"),
                channel.stream_unary(f"/{SERVICE}/{CALL}"),
                channel.stream_stream(f"/{SERVICE}/{STREAM}"),
            )
        return self._channel

    async def _wait_connected(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            if self._connecting is None or self._connecting.done():
                self._connecting = loop.create_task(_connect(self._open_channel(), self.address))
            attempt = self._connecting
            await asyncio.wait([attempt], timeout=max(0.0, deadline - loop.time()))
            if self._refusing:
                raise NotReached(f"the connection to {self.address} was closed")
            if not attempt.done():
                raise NotReached(f"{self.address} could not be reached within {timeout_s:.3g} s")
            if not attempt.cancelled() and (error := attempt.result()) is not None:
                raise NotReached(str(error))
            # It was connected when the attempt ended. Since then other tasks ran, and there may be another channel.
            if self._open_channel().get_state() is _READY:
                return


async def _connect(channel: grpc.aio.Channel, address: str) -> NotReached | None:
    """Return when the channel is connected, with the error if it could not be, or without when this is cancelled."""
    try:
        while (state := channel.get_state(try_to_connect=True)) is not _READY:
            if state is _FAILED:
                return NotReached(f"{address} does not answer")
            await channel.wait_for_state_change(state)
    except asyncio.CancelledError:
        pass
    return None
