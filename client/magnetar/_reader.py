"""The synchronous reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Self

from magnetar._consumer import Run, close_listener, pop_nothing, refuse_receive
from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._consuming.receiver import ThreadReceiver
from magnetar._interceptors.consumer_interceptors import CallLater, intercept_reader
from magnetar._interceptors.interceptor import ReaderInterceptor
from magnetar._listeners.listener_threads import ListenerThreads
from magnetar._listeners.thread_listener import BaseThreadListener, listen_on_threads
from magnetar._message import Message
from magnetar._public_object import Unpicklable, repr_of
from magnetar.exceptions import AlreadyClosed
from magnetar.schema._schema import T
from magnetar_wire.message_id import MessageId

__all__ = ["BaseReader", "Reader"]


class BaseReader(Unpicklable):
    """The methods that don't wait, which the synchronous and the asyncio reader share."""

    def __init__(self, core: MultiTopicConsumer) -> None:
        self._core = core

    def topic(self) -> str:
        """Return the topic's full name."""
        return str(self._core.names[0])

    def is_connected(self) -> bool:
        """Return whether all partitions are connected to their brokers now."""
        return self._core.is_connected

    def has_reached_end_of_topic(self) -> bool:
        """Return whether the topic is terminated and all of its messages were read. It becomes true a moment after the
        last message was read."""
        return self._core.has_reached_end()

    def __repr__(self) -> str:
        return repr_of(self, "topic", "is_connected")


class Reader(BaseReader, Generic[T]):
    """Reads a topic from a position on, without a subscription that outlives it: `Client.create_reader` creates it.

    It needs no acknowledgements. While its broker can't be reached it returns the messages that it has prefetched. Then
    it waits, and continues behind them.
    """

    def __init__(
        self,
        core: MultiTopicConsumer,
        run: Run,
        listener: Callable[[Reader[T], Message[T]], object] | None,
        threads: ListenerThreads,
        interceptors: Sequence[ReaderInterceptor] | None,
        call_later: CallLater,
    ) -> None:
        super().__init__(core)
        if interceptors:
            intercept_reader(self, core, interceptors, call_later)
        self._run = run
        self._receiver = ThreadReceiver(core)
        # With interceptors, each message passes the receiver.
        self._popping = core.queue.popping if core.interceptors is None else iter(pop_nothing, None)
        self._listener: BaseThreadListener | None = None
        if listener is not None:
            self._popping = iter(refuse_receive, None)
            self._listener = listen_on_threads(self, core, listener, threads)

    def read_next(self, timeout_millis: int | None = None) -> Message[T]:
        """Return the next message; wait until there is one. Raise Timeout if there is none within `timeout_millis`."""
        try:
            # Ctrl-C can't come between the pop and the return: see _prefetching/receiver_queue.py.
            for message in self._popping:
                return message
        except IndexError:
            pass
        return self._receiver.receive(timeout_millis)

    def has_message_available(self) -> bool:
        """Return whether `read_next` will return a message that was published before this call."""
        available: bool = self._run(self._core.has_message_available())
        return available

    def seek(self, messageid: MessageId | int) -> None:
        """Continue behind a message (with it, with `start_message_id_inclusive`), at `MessageId.earliest` or `latest`,
        or with the first message that a broker received at or after a time, in ms since 1970."""
        self._run(self._core.seek(messageid))

    def close(self) -> None:
        """Close the reader. Closing twice does nothing. It waits for a call of its listener, as a consumer does."""
        close_listener(self._listener, self._core)
        if self._core.error is None:
            self._run(self._core.close())

    def __iter__(self) -> Self:
        """Iterate over the messages, including those still to come, until the reader is closed."""
        return self

    def __next__(self) -> Message[T]:
        try:
            return self.read_next()
        except AlreadyClosed:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
