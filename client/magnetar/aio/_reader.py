"""The asyncio reader, for tasks of the loop on which its client was created.

Methods and docstrings are those of magnetar._reader, as tests/unit/client/test_signatures.py checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Self

from magnetar._consumer import pop_nothing, refuse_receive
from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._consuming.receiver import TaskReceiver
from magnetar._interceptors.consumer_interceptors import intercept_reader
from magnetar._interceptors.interceptor import ReaderInterceptor
from magnetar._listeners.message_listener import TaskListener
from magnetar._message import Message
from magnetar._reader import BaseReader
from magnetar.exceptions import AlreadyClosed
from magnetar.schema._schema import T
from magnetar_wire.message_id import MessageId

__all__ = ["Reader"]


class Reader(BaseReader, Generic[T]):
    """Reads a topic from a position on, without a subscription that outlives it: `Client.create_reader` creates it.

    It needs no acknowledgements. While its broker can't be reached it returns the messages that it has prefetched. Then
    it waits, and continues behind them.
    """

    def __init__(
        self,
        core: MultiTopicConsumer,
        listener: Callable[[Reader[T], Message[T]], object] | None,
        interceptors: Sequence[ReaderInterceptor] | None,
    ) -> None:
        super().__init__(core)
        if interceptors:
            intercept_reader(self, core, interceptors, lambda call: call())
        self._receiver = TaskReceiver(core)
        # With interceptors, each message passes the receiver.
        self._pop: Callable[[], Message[T]] = core.queue.ready.popleft if core.interceptors is None else pop_nothing
        if listener is not None:
            self._pop = refuse_receive
            TaskListener(self, core, listener, self._receiver)

    async def read_next(self, timeout_millis: int | None = None) -> Message[T]:
        """Return the next message; wait until there is one. Raise Timeout if there is none within `timeout_millis`.

        A cancellation loses no message.
        """
        try:
            return self._pop()
        except IndexError:
            return await self._receiver.receive(timeout_millis)

    async def has_message_available(self) -> bool:
        """Return whether `read_next` will return a message that was published before this call."""
        return await self._core.has_message_available()

    async def seek(self, messageid: MessageId | int) -> None:
        """Continue behind a message (with it, with `start_message_id_inclusive`), at `MessageId.earliest` or `latest`,
        or with the first message that a broker received at or after a time, in ms since 1970."""
        await self._core.seek(messageid)

    async def close(self) -> None:
        """Close the reader. Closing twice does nothing. It waits for a call of its listener, as a consumer does."""
        await self._core.close()

    def __aiter__(self) -> Self:
        """Iterate over the messages, including those still to come, until the reader is closed."""
        return self

    async def __anext__(self) -> Message[T]:
        try:
            return await self.read_next()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
