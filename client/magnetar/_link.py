"""A link: one stream of one client to one broker, for all its producers there, or for all its consumers.

Whoever talks over a link is a *channel* with an id of the link's. What the channels have to send leaves together: the
sender asks for the next message (`gather`) as soon as the stream has taken the last one, so that a message holds
whatever came up meanwhile. An idle link sends at once. What comes is dispatched to the channels by id (`dispatch`).
Neither waits for a channel, and no channel is ever waited for: what may gather is bounded by what each of them may have
under way.

**A link breaks once, with all that was on its way.** Each channel is then told `disconnected`, and nothing reaches it
through this link any more; its owner looks the topic up again and attaches it to another link. That a message was
handed to the stream says nothing about whether it was received.

`disconnected` is never called from within `attach`, `detach` or `wake`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from google.protobuf.message import DecodeError

from magnetar_wire.errors import WireError
from magnetar_wire.transport import Disconnected, Stream, TransportError

__all__ = ["Channel", "Link"]

log = logging.getLogger(__name__)


class Channel(Protocol):
    """A producer or a consumer, as its link knows it."""

    def disconnected(self, error: TransportError) -> None:
        """The link is broken; what was on its way is unknown. Must not raise."""


C = TypeVar("C", bound=Channel)


class Link(ABC, Generic[C]):
    """Made and used on one event loop. Its tasks end when it breaks; `Connections` keeps it, and waits for that."""

    # The stream's method at the broker.
    method: ClassVar[str]

    def __init__(self, stream: Stream, address: str) -> None:
        self.address = address
        self.channels: dict[int, C] = {}
        self.broken: TransportError | None = None
        self._stream = stream
        # Ids are never used twice on one stream: what is said of a channel that is gone must not reach another.
        self._last_id = 0
        # What the sender waits for when there is nothing to send.
        self._idle: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._guarded(self._send()), name=f"{self.method} to {address}: send"),
            loop.create_task(self._guarded(self._receive()), name=f"{self.method} to {address}: receive"),
        ]

    @abstractmethod
    def gather(self) -> bytes | None:
        """The next message: as much as it may hold of what the channels have to send. None: they have nothing."""

    @abstractmethod
    def dispatch(self, message: bytes) -> None:
        """Hands what came to its channels. Of a channel that is not there (any more) it is passed over.

        Raises DecodeError or WireError for what can't be read: the link breaks.
        """

    def attach(self, channel: C) -> int:
        """The channel's id. Raises the error that broke the link, if it is broken."""
        if self.broken is not None:
            raise self.broken
        self._last_id += 1
        self.channels[self._last_id] = channel
        return self._last_id

    def detach(self, channel_id: int) -> None:
        """Nothing reaches the channel through this link any more."""
        self.channels.pop(channel_id, None)

    def wake(self) -> None:
        """There is something to gather."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def break_off(self, error: TransportError) -> None:
        """Ends the stream at once, and tells every channel."""
        if self.broken is not None:
            return
        self.broken = error
        self._stream.cancel()
        self.wake()
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.disconnected(error)

    @property
    def ended(self) -> bool:
        return all(task.done() for task in self._tasks)

    async def wait_ended(self) -> None:
        """Returns when a broken link's tasks have ended."""
        await asyncio.wait(self._tasks)

    async def _guarded(self, work: Coroutine[Any, Any, str]) -> None:
        """However the work ends, the link ends with it."""
        try:
            error: TransportError = Disconnected(f"the broker at {self.address} {await work}")
        except TransportError as failure:
            error = failure
        except asyncio.CancelledError:
            self.break_off(Disconnected(f"the stream to {self.address} was given up"))
            raise
        except Exception as fault:
            log.exception("%s to %s: a fault of ours", self.method, self.address)
            error = Disconnected(f"the stream to {self.address} was given up: {fault!r}")
        self.break_off(error)

    async def _send(self) -> str:
        while self.broken is None:
            message = self.gather()
            if message is not None:
                await self._stream.send(message)
                continue
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        return "is not talked to any more"

    async def _receive(self) -> str:
        while (message := await self._stream.receive()) is not None:
            if self.broken is not None:
                break
            try:
                self.dispatch(message)
            except (DecodeError, WireError) as error:
                return f"sent what can't be read: {error}"
        return "ended the stream"
