"""The synchronous reader."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from magnetar._consumer import Run
from magnetar._consumer_core import ConsumerCore
from magnetar._consumer_front import no_receive, seek_target
from magnetar._listening import ThreadListening
from magnetar._message import Message
from magnetar._public_object import Unpicklable, repr_of
from magnetar._waiting import ThreadWaiting
from magnetar.exceptions import AlreadyClosed
from magnetar_wire.message_id import MessageId

__all__ = ["Reader"]


class Reader(Unpicklable):
    """Reads a topic from a place on, and leaves nothing behind: `Client.create_reader` makes it.

    It needs no acknowledgements. While its broker is away it returns what it has prefetched, then waits, and goes on
    behind that.
    """

    def __init__(
        self, core: ConsumerCore, run: Run, listener: Callable[[Reader, Message], object] | None = None
    ) -> None:
        self._core = core
        self._run = run
        self._waiting = ThreadWaiting(core)
        self._popping = core.queue.popping
        self._listening: ThreadListening | None = None
        if listener is not None:
            self._popping = iter(no_receive, None)
            self._listening = ThreadListening(self, listener, self._waiting, self.topic())

    def topic(self) -> str:
        """The topic's full name."""
        return str(self._core.names[0])

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """The next message; waits until there is one. Raises Timeout if there was none within `timeout_millis`."""
        try:
            for message in self._popping:  # nothing can strike between: see _receiver_queue.py
                return message
        except IndexError:
            pass
        return self._waiting.receive(timeout_millis)

    def has_message_available(self) -> bool:
        """Whether `read_next` will return a message that is there already."""
        available: bool = self._run(self._core.has_message_available())
        return available

    def seek(self, messageid: MessageId | int) -> None:
        """Goes on behind a message (with it, with `start_message_id_inclusive`), at `MessageId.earliest` or `latest`,
        or with the first message that a broker took at a time, in ms since 1970, or later."""
        self._run(self._core.seek(seek_target(self._core, messageid)))

    def is_connected(self) -> bool:
        return self._core.connected

    def close(self) -> None:
        """Closing twice does nothing."""
        if self._listening is not None:
            self._listening.close()
        if self._core.over is None:
            self._run(self._core.close())

    def __iter__(self) -> Self:
        """Over the messages, those to come as well, until it is closed."""
        return self

    def __next__(self) -> Message:
        try:
            return self.read_next()
        except AlreadyClosed:
            raise StopIteration from None

    def __repr__(self) -> str:
        return repr_of(self, "topic", "is_connected")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
