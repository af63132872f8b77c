"""The asyncio reader."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from magnetar._consumer_core import ConsumerCore
from magnetar._consumer_front import no_receive, seek_target
from magnetar._listening import TaskListening
from magnetar._message import Message
from magnetar._public_object import Unpicklable, repr_of
from magnetar._waiting import TaskWaiting
from magnetar.exceptions import AlreadyClosed
from magnetar_wire.message_id import MessageId

__all__ = ["Reader"]


class Reader(Unpicklable):
    """Reads a topic from a place on, and leaves nothing behind: `Client.create_reader` makes it.

    It needs no acknowledgements. While its broker is away it returns what it has prefetched, then waits, and goes on
    behind that.
    """

    def __init__(self, core: ConsumerCore, listener: Callable[[Reader, Message], object] | None = None) -> None:
        self._core = core
        self._waiting = TaskWaiting(core)
        self._next: Callable[[], Message] = core.queue.ready.popleft
        self._listening: TaskListening | None = None
        if listener is not None:
            self._next = no_receive
            self._listening = TaskListening(self, listener, self._waiting, self.topic())

    def topic(self) -> str:
        """The topic's full name."""
        return str(self._core.names[0])

    async def read_next(self, timeout_millis: int | None = None) -> Message:
        """The next message; waits until there is one. Raises Timeout if there was none within `timeout_millis`.

        A cancellation loses no message.
        """
        try:
            return self._next()
        except IndexError:
            return await self._waiting.receive(timeout_millis)

    async def has_message_available(self) -> bool:
        """Whether `read_next` will return a message that is there already."""
        return await self._core.has_message_available()

    async def seek(self, messageid: MessageId | int) -> None:
        """Goes on behind a message (with it, with `start_message_id_inclusive`), at `MessageId.earliest` or `latest`,
        or with the first message that a broker took at a time, in ms since 1970, or later."""
        await self._core.seek(seek_target(self._core, messageid))

    def is_connected(self) -> bool:
        return self._core.connected

    async def close(self) -> None:
        """Closing twice does nothing."""
        if self._listening is not None:
            self._listening.close()
        await self._core.close()

    def __aiter__(self) -> Self:
        """Over the messages, those to come as well, until it is closed."""
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.read_next()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    def __repr__(self) -> str:
        return repr_of(self, "topic", "is_connected")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
