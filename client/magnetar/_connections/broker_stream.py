"""One stream of a client to a broker, for all of the client's producers there, or for all of its consumers.

A producer or consumer uses the stream as a *channel*, with an id. Requests of all channels are sent together: when the
transport has taken the last message, the next one is built from what the channels have to send by then (`gather`), and
if that is nothing, the sender waits (`wake`). What is received is parsed and handled in the order received, each part
by its channel (`dispatch`). Neither direction waits for a channel. What `gather` may hold is bounded by what each
channel may have in flight.

**When the connection breaks**, the stream breaks once, with all that was in flight. So it does when an opening times
out and nothing else is received either. Each channel is notified (`disconnected`), and gets nothing from this stream
any more. Its owner looks the topic up again, and attaches to a stream that works. Whether a message that was handed to
the stream has been received is not known then.

`disconnected` is never called from within `attach`, `detach` or `wake`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar.exceptions import InvalidArgument
from magnetar_wire.errors import WireError
from magnetar_wire.transport import Disconnected, Stream, TransportError

__all__ = ["MAX_OPEN_BYTES", "BrokerStream", "Channel", "check_open_size"]

log = logging.getLogger(__name__)

# The maximum size of a request to open a producer or consumer. Beside it, a message of the stream has to hold a frame.
MAX_OPEN_BYTES: Final = 2 * 1024 * 1024


class Channel(Protocol):
    """A producer or a consumer, as its stream uses it."""

    def disconnected(self, error: TransportError) -> None:
        """Note that the stream is broken, and that the fate of what was in flight is unknown. Must not raise."""


C = TypeVar("C", bound=Channel)


def check_open_size(request: Message, topic: str) -> None:
    """Raise InvalidArgument for a request that is too large, because of its names, properties or schema."""
    size = request.ByteSize()
    if size > MAX_OPEN_BYTES:
        raise InvalidArgument(
            f"{topic} can't be opened with names, properties and a schema of {size:,} bytes: at most "
            f"{MAX_OPEN_BYTES:,} are possible"
        )


class BrokerStream(ABC, Generic[C]):
    """Created and used on one event loop. Its tasks end when it breaks; the `ConnectionPool` waits for that."""

    # The stream's method at the broker.
    method: ClassVar[str]

    def __init__(self, stream: Stream, address: str) -> None:
        self.address = address
        self.channels: dict[int, C] = {}
        self.broken: TransportError | None = None
        self._stream = stream
        # The number of messages from the broker. Above 0 it is connected, and `finish` reaches it.
        self.received_messages = 0
        self._is_finished = False
        # An id is never used twice on one stream: an answer to a channel that was detached must not reach another.
        self._last_id = 0
        # The sender waits for it when there is nothing to send.
        self._idle: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._run(self._send()), name=f"{self.method} to {address}: send"),
            loop.create_task(self._run(self._receive()), name=f"{self.method} to {address}: receive"),
        ]

    @abstractmethod
    def gather(self) -> bytes | None:
        """Return the next message: as much as it may hold of what the channels have to send. None: nothing."""

    @abstractmethod
    def dispatch(self, message: bytes) -> None:
        """Hand each part of a message to its channel. Skip parts for channels that were detached.

        Raises DecodeError or WireError for a message that can't be decoded. Then the stream breaks.
        """

    def attach(self, channel: C) -> int:
        """Return the channel's id. Raises the error that broke the stream, if it is broken."""
        if self.broken is not None:
            raise self.broken
        self._last_id += 1
        self.channels[self._last_id] = channel
        return self._last_id

    def detach(self, channel_id: int) -> None:
        """Have nothing reach the channel through this stream any more."""
        self.channels.pop(channel_id, None)

    def wake(self) -> None:
        """Wake the sender: a channel has something to send."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def finish(self) -> None:
        """Send nothing more, and have the broker end the stream. A stream that never reached it is cancelled."""
        if not self.received_messages:
            self.break_off(Disconnected(f"the stream to {self.address} was closed"))
        elif self.broken is None:
            self._is_finished = True
            await self._stream.finish()

    def break_off(self, error: TransportError) -> None:
        """Cancel the stream, and notify every channel."""
        if self.broken is not None:
            return
        self.broken = error
        self._stream.cancel()
        self.wake()
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.disconnected(error)

    def break_if_silent(self, received_before: int) -> None:
        """Break the stream if nothing was received on it since `received_messages` had this value.

        Called when an opening was not answered in time. A stream may stall although its connection answers pings: then
        no error ends it, and each further opening on it would wait in vain, too.
        """
        if self.received_messages == received_before:
            self.break_off(Disconnected(f"the broker at {self.address} has sent nothing while an opening timed out"))

    @property
    def ended(self) -> bool:
        return all(task.done() for task in self._tasks)

    async def wait_ended(self) -> None:
        """Return when the tasks of a broken stream have ended."""
        await asyncio.wait(self._tasks)

    async def _run(self, work: Coroutine[Any, Any, str]) -> None:
        """Run one direction. However it ends, the stream breaks."""
        try:
            error: TransportError = Disconnected(f"the broker at {self.address} {await work}")
        except TransportError as failure:
            error = failure
        except asyncio.CancelledError:
            self.break_off(Disconnected(f"the stream to {self.address} was cancelled"))
            raise
        except Exception as bug:
            log.exception("%s to %s: a bug in the client", self.method, self.address)
            error = Disconnected(f"the stream to {self.address} was closed after an internal error: {bug!r}")
        self.break_off(error)

    async def _send(self) -> str:
        while self.broken is None:
            message = None if self._is_finished else self.gather()
            if message is not None:
                await self._stream.send(message)
                continue
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        return "is not sent to any more"

    async def _receive(self) -> str:
        while (message := await self._stream.receive()) is not None:
            if self.broken is not None:
                break
            self.received_messages += 1
            try:
                self.dispatch(message)
            except (DecodeError, WireError) as error:
                return f"sent a message that can't be decoded: {error}"
        return "ended the stream"
