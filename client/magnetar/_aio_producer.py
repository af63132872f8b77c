"""The producer of asyncio: the same core, on the application's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from magnetar._batch import Waiter
from magnetar._outgoing import Outgoing, check_size, outgoing
from magnetar._partition_producer import PartitionProducer
from magnetar._repr import repr_of
from magnetar._topic_producer import TopicProducer
from magnetar.exceptions import MagnetarException, OperationNotSupported, ProducerQueueIsFull
from magnetar_wire.message_id import MessageId

if TYPE_CHECKING:
    from magnetar.aio import Client

__all__ = ["Producer"]


class Producer:
    """Publishes messages on one topic. `await client.create_producer(…)` makes it."""

    def __init__(self, client: Client, core: TopicProducer) -> None:
        self._client = client
        self._core = core
        # Sends that wait for room, one after the other.
        self._turn = asyncio.Lock()
        self._waiting = 0

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
        """Publishes a message, and returns its id when it is durable. Sends that are made together travel together.

        The message is taken, and its place in the order settled, before the first `await` is left, unless the producer
        waits for room (`block_if_queue_full`). Cancelling the wait does not take it back.
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
        if not part.begun:
            await self._core.begin(part)
        check_size(message.content, part.queue.bounds.max_message_bytes, self._core.options.compression_type)
        receipt: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()

        def received(outcome: MessageId | MagnetarException) -> None:
            if receipt.done():  # cancelled
                return
            if isinstance(outcome, MagnetarException):
                receipt.set_exception(outcome)
            else:
                receipt.set_result(outcome)

        if self._waiting or not self._add(part, message, received):
            await self._wait_turn(part, message, received)
        return await receipt

    def send_async(self, *arguments: object, **options: object) -> NoReturn:
        """Not supported: `send` is a coroutine here."""
        raise OperationNotSupported(
            "an asyncio producer has no send_async: await send(…), or await many in asyncio.gather(…)"
        )

    def _add(self, part: PartitionProducer, message: Outgoing, received: Waiter) -> bool:
        """False: there is no room, and the producer is one that waits."""
        try:
            part.queue.add(
                message.content,
                None,
                received,
                message.size,
                message.key,
                message.ordering_key,
                message.properties,
                message.event_time,
                message.sequence_id,
            )
        except ProducerQueueIsFull:
            if not self._core.options.block_if_queue_full:
                raise
            return False
        return True

    async def _wait_turn(self, part: PartitionProducer, message: Outgoing, received: Waiter) -> None:
        """Who came first sends first: nobody overtakes those who wait for room."""
        self._waiting += 1
        try:
            async with self._turn:
                while not self._add(part, message, received):
                    await part.queue.wait_room()
        finally:
            self._waiting -= 1

    async def flush(self) -> None:
        """Returns when all that was sent before is durable. Raises the first error that any of it met."""
        await self._core.flush()

    async def close(self) -> None:
        """Sends what is pending, waits for its receipts, and leaves."""
        await self._client._close_member(self._core)

    def __repr__(self) -> str:
        return repr_of(self, "topic", "producer_name", "is_connected", "last_sequence_id")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
