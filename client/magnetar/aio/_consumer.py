"""The asyncio consumer, for tasks of the loop on which its client was created.

Methods and docstrings are those of magnetar._consumer, as tests/unit/client/test_signatures.py checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Generic, Self

from magnetar._consumer import Acknowledgeable, ConsumerMethods, get_single_id, pop_nothing, refuse_receive
from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._consuming.receiver import TaskReceiver
from magnetar._listeners.message_listener import TaskListener
from magnetar._message import Message
from magnetar.exceptions import AlreadyClosed
from magnetar.schema._schema import T
from magnetar_wire.message_id import MessageId

__all__ = ["Consumer"]


class Consumer(ConsumerMethods, Generic[T]):
    """A subscription's consumer: `Client.subscribe` creates it.

    `async for` iterates over its messages until it is closed.
    """

    def __init__(
        self,
        core: MultiTopicConsumer,
        listener: Callable[[Consumer[T], Message[T]], object] | None,
        message_listener_threads: int,
    ) -> None:
        super().__init__(core)
        self._receiver = TaskReceiver(core)
        # With interceptors, each message passes the receiver.
        self._pop: Callable[[], Message[T]] = core.queue.ready.popleft if core.interceptors is None else pop_nothing
        self._listener: TaskListener | None = None
        if listener is not None:
            self._pop = refuse_receive
            self._listener = TaskListener(self, core, listener, self._receiver, message_listener_threads)

    async def receive(self, timeout_millis: int | None = None) -> Message[T]:
        """Return the next message; wait until there is one. Raise Timeout if there is none within `timeout_millis`.

        A cancellation loses no message.
        """
        try:
            return self._pop()
        except IndexError:
            return await self._receiver.receive(timeout_millis)

    async def batch_receive(self) -> list[Message[T]]:
        """Return as many messages as `batch_receive_policy` allows; an empty list, if there are none in its time.

        A cancellation loses no message.
        """
        if self._listener is not None:
            refuse_receive()
        return await self._receiver.receive_batch()

    async def acknowledge(self, message: Acknowledgeable, *, receipt: bool | None = None) -> None:
        """Acknowledge a message, or several: it is processed and need not be redelivered.

        It is sent with others after `ack_grouping_time_ms`. With `receipt`, or `ack_receipt_enabled`, it is sent at
        once, and this returns when the acknowledgement is durable.
        """
        if self._add_single_ack(message, receipt):
            return
        targets = self._find_targets(message)
        if self._wants_receipt(receipt):
            await self._core.acknowledge(targets)
        else:
            self._acknowledge_soon(targets)

    async def acknowledge_cumulative(self, message: Message[Any] | MessageId, *, receipt: bool | None = None) -> None:
        """Acknowledge all messages up to and including this one. Not on a Shared or Key_Shared subscription.

        On a topic with partitions: all those of the message's own partition.
        """
        targets = self._find_cumulative_targets(message)
        if self._wants_receipt(receipt):
            await self._core.acknowledge(targets)
        else:
            self._acknowledge_soon(targets)

    async def negative_acknowledge(self, message: Message[Any] | MessageId) -> None:
        """Have a message that was not processed redelivered after `negative_ack_redelivery_delay_ms`, or its backoff.

        Returns at once. Exclusive and Failover redeliver everything from the first message that is not acknowledged,
        in order. Shared and Key_Shared redeliver that message, and those of its batch that are not acknowledged.
        """
        self._negative_acknowledge(message)

    async def reconsume_later(
        self, message: Message[Any], delay_ms: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        """Have a message that can't be processed now delivered again after `delay_ms`, and acknowledge it. A delay of
        more than 100 years counts as 100 years.

        It is stored in the retry letter topic, with `properties` added to its own. This returns when it is durable
        there. If it was retried too often, it goes to the dead letter topic. If it can't be stored, this raises the
        error, and the message is redelivered. Needs `enable_retry`.
        """
        await self._reconsume_later(message, delay_ms, properties)

    async def seek(self, messageid: MessageId | int) -> None:
        """Move the subscription behind a message (to it, with `start_message_id_inclusive`), to `MessageId.earliest`
        or `latest`, or to the first message that a broker received at or after a time, in ms since 1970.

        Messages that were received before, and are not acknowledged, can't be acknowledged any more.
        """
        await self._core.seek(messageid)

    async def get_last_message_id(self) -> MessageId:
        """Return the id of the last message that can be read; without messages, the position before the first one."""
        return get_single_id(await self._core.last_message_ids())

    async def get_last_message_ids(self) -> list[MessageId]:
        """Return the id of the last message of each topic or partition, as `get_last_message_id` does."""
        return await self._core.last_message_ids()

    def pause_message_listener(self) -> None:
        """Stop calling the listener until `resume_message_listener`. A call that is running goes on. Messages are still
        prefetched, until the receiver queue is full."""
        if self._listener is not None:
            self._listener.pause()

    def resume_message_listener(self) -> None:
        """Call the listener again, with the messages that have arrived since `pause_message_listener`, too."""
        if self._listener is not None:
            self._listener.resume()

    async def unsubscribe(self) -> None:
        """Delete the subscription, and close the consumer. It must be the only one of the subscription."""
        await self._core.unsubscribe()

    async def close(self) -> None:
        """Send all acknowledgements, and leave the subscription, which stays. Closing twice does nothing.

        The listener is not called any more. A call that is running may end before, and acknowledge its message;
        `close` waits for it, for `operation_timeout_seconds` at most. It does not wait if a listener calls it.
        """
        await self._core.close()

    def __aiter__(self) -> Self:
        """Iterate over the messages, including those still to come, until the consumer is closed."""
        return self

    async def __anext__(self) -> Message[T]:
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
