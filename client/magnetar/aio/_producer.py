"""The producer of asyncio: the same core, on the application's own loop.

**Back-pressure.** Awaiting `send` is what slows an application down: where the queue has no capacity left
(`max_pending_messages`, `max_pending_bytes`), it waits, and never raises ProducerQueueIsFull. A send that waits has not
been accepted: if it is cancelled, or the producer is closed, nothing of it is sent. Once it is accepted, cancelling the
await does not take it back.

**Order.** The messages of one partition are sent in the order in which `send` was called. A send that has to wait, for
capacity or for a partition that is opened lazily, joins its partition's line (_waiting_sends.py), and every later one
joins behind it. Other partitions go on. `flush` queues behind the sends that wait as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import NoReturn, Self

from magnetar._outgoing_message import Outgoing, check_size, outgoing
from magnetar._partition_producer import PartitionProducer
from magnetar._public_object import Unpicklable, repr_of
from magnetar._topic_producer import TopicProducer
from magnetar._waiting_sends import WaitingSends
from magnetar.exceptions import MagnetarException, OperationNotSupported, ProducerQueueIsFull
from magnetar_wire.message_id import MessageId

__all__ = ["Producer"]


class Producer(Unpicklable):
    """Publishes messages on one topic. `await client.create_producer(…)` makes it."""

    def __init__(self, core: TopicProducer) -> None:
        self._core = core
        # By partition, for partitions that a send had to wait for once.
        self._waiting: dict[PartitionProducer, WaitingSends] = {}

    def topic(self) -> str:
        """The topic's full name."""
        return self._core.topic

    def producer_name(self) -> str:
        """Its name: what it was given, or what the broker made."""
        return self._core.producer_name

    def last_sequence_id(self) -> int:
        """The highest sequence id that is known to be stored; -1: none is."""
        return self._core.last_sequence_id

    def is_connected(self) -> bool:
        """There is a connection to each partition's broker. Without one, messages wait for the next."""
        return self._core.connected

    async def send(
        self,
        content: bytes | None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Publish a message, and return its id when it is durable. Sends that are made together travel together.

        Waits while as many messages are pending as may be (`max_pending_messages`, `max_pending_bytes`), so that any
        number of sends can be awaited at once; `block_if_queue_full` makes no difference. Messages of one partition
        are stored in the order of the calls. Cancelling a send that waits for capacity withdraws it; later than that
        the message is sent all the same.
        """
        message = outgoing(
            content,
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )
        part = self._core.route(
            message.content, message.properties, message.key, message.ordering_key, message.event_time
        )
        receipt: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        if part.begun:
            self._check_size(part, message)
        waiting = self._waiting.get(part)
        if not part.begun or waiting or not self._add(part, message, receipt):
            if waiting is None:
                waiting = self._waiting[part] = WaitingSends(part, self._core.begin, self._check_size, self._add)
            await waiting.wait(message, receipt)
        return await receipt

    def send_async(self, *arguments: object, **options: object) -> NoReturn:
        """Not supported: `send` is a coroutine here."""
        raise OperationNotSupported(
            "an asyncio producer has no send_async: await send(…), or await many in asyncio.gather(…)"
        )

    def _check_size(self, part: PartitionProducer, message: Outgoing) -> None:
        check_size(message.content, part.queue.bounds.max_message_bytes, self._core.options.compression_type)

    def _add(self, part: PartitionProducer, message: Outgoing, receipt: asyncio.Future[MessageId]) -> bool:
        """Put the message into the queue. Returns False if there is no capacity left."""
        try:
            part.queue.add(
                message.content,
                None,
                partial(_set_receipt, receipt),
                message.size,
                message.key,
                message.ordering_key,
                message.properties,
                message.event_time,
                message.sequence_id,
            )
        except ProducerQueueIsFull:
            return False
        return True

    async def flush(self) -> None:
        """Return when everything that was sent before is durable. Raises the first error that any of it met."""
        await asyncio.gather(*(waiting.add_mark() for waiting in self._waiting.values() if waiting))
        await self._core.flush()

    async def close(self) -> None:
        """Send what is pending, wait until it is stored, and leave. Sends that wait for capacity meet AlreadyClosed."""
        client = self._core.client
        if not client.closed:
            await client.close_member(self._core)

    def __repr__(self) -> str:
        return repr_of(self, "topic", "producer_name", "is_connected", "last_sequence_id")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _set_receipt(receipt: asyncio.Future[MessageId], outcome: MessageId | MagnetarException) -> None:
    if receipt.done():  # cancelled
        return
    if isinstance(outcome, MagnetarException):
        receipt.set_exception(outcome)
    else:
        receipt.set_result(outcome)
