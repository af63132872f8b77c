"""The asyncio consumer, for tasks of the loop on which its client was made."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from magnetar._consumer_core import ConsumerCore
from magnetar._consumer_front import (
    Acknowledgeable,
    ConsumerFront,
    no_receive,
    one_last_id,
    seek_target,
)
from magnetar._listening import TaskListening
from magnetar._message import Message
from magnetar._waiting import TaskWaiting
from magnetar.exceptions import AlreadyClosed
from magnetar_wire.message_id import MessageId

__all__ = ["Consumer"]


class Consumer(ConsumerFront):
    """A subscription's consumer: `Client.subscribe` makes it. `async for` goes over its messages until it is closed."""

    def __init__(self, core: ConsumerCore, listener: Callable[[Consumer, Message], object] | None = None) -> None:
        super().__init__(core)
        self._waiting = TaskWaiting(core)
        self._next: Callable[[], Message] = core.queue.ready.popleft
        self._listening: TaskListening | None = None
        if listener is not None:
            self._next = no_receive
            self._listening = TaskListening(self, listener, self._waiting, self.topic())

    async def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message; waits until there is one. Raises Timeout if there was none within `timeout_millis`.

        A cancellation loses no message.
        """
        try:
            return self._next()
        except IndexError:
            return await self._waiting.receive(timeout_millis)

    async def batch_receive(self) -> list[Message]:
        """Messages, as many as the consumer's `batch_receive_policy` says. None, if its time has passed without any.

        A cancellation loses no message.
        """
        if self._listening is not None:
            no_receive()
        return await self._waiting.receive_batch()

    async def acknowledge(self, message: Acknowledgeable, *, receipt: bool | None = None) -> None:
        """The message is processed, and need not come again; of a number of them, all are.

        Leaves with others before long (`ack_grouping_time_ms`). With `receipt`, or `ack_receipt_enabled`, it leaves at
        once, and this returns when the acknowledgement is durable.
        """
        targets = self._targets(message)
        if self._wants_receipt(receipt):
            await self._core.acknowledge(targets)
        else:
            self._put(targets)

    async def acknowledge_cumulative(self, message: Message | MessageId, *, receipt: bool | None = None) -> None:
        """All messages up to and with this one are processed. Not on a Shared subscription.

        Of a topic with partitions: those of the message's own partition.
        """
        targets = self._cumulative(message)
        if self._wants_receipt(receipt):
            await self._core.acknowledge(targets)
        else:
            self._put(targets)

    async def negative_acknowledge(self, message: Message | MessageId) -> None:
        """The message was not processed, and is to come again after `negative_ack_redelivery_delay_ms`, or as the
        back-off says. Returns at once.

        Exclusive and Failover: with it comes again, in order, everything from the first message that is not
        acknowledged. Shared: that message, and those of its batch that are not acknowledged.
        """
        self._refuse(message)

    async def seek(self, messageid: MessageId | int) -> None:
        """Moves the subscription behind a message (to it, with `start_message_id_inclusive`), to `MessageId.earliest`
        or `latest`, or to the first message that a broker took at a time, in ms since 1970, or later.

        What was received before and is not acknowledged can't be acknowledged any more.
        """
        await self._core.seek(seek_target(self._core, messageid))

    async def get_last_message_id(self) -> MessageId:
        """The last message that there is to be read; of none, the place before all messages."""
        return one_last_id(await self._core.last_message_ids())

    async def get_last_message_ids(self) -> list[MessageId]:
        """The same for each topic or partition."""
        return await self._core.last_message_ids()

    def pause_message_listener(self) -> None:
        """The listener is not called until `resume_message_listener`."""
        if self._listening is not None:
            self._listening.pause()

    def resume_message_listener(self) -> None:
        if self._listening is not None:
            self._listening.resume()

    async def unsubscribe(self) -> None:
        """Deletes the subscription, and closes the consumer. It must be the subscription's only one."""
        await self._core.unsubscribe()
        self._end_listening()

    async def close(self) -> None:
        """Sends what is acknowledged, and leaves the subscription, which stays. Closing twice does nothing."""
        self._end_listening()
        await self._core.close()

    def _end_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
