"""The asyncio producer: the same core as the synchronous producer's, on the application's own loop.

**Back-pressure.** Awaiting `send` is what slows an application down: if the queue has no capacity left
(`max_pending_messages`, `max_pending_bytes`), it waits, and never raises ProducerQueueIsFull. A send that waits has not
been accepted: if it is cancelled, or the producer is closed, nothing of it is sent. Once it is accepted, cancelling the
await does not withdraw it.

**Order.** The messages of one partition are sent in the order in which `send` was called. A send that has to wait, for
capacity or for a partition that is opened on demand, joins its partition's line (`_WaitingSends`), and every later one
joins behind it. Other partitions go on. `flush` waits behind the sends in line as well.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Generic, NoReturn, Self

from magnetar._producing.outgoing_message import OutgoingMessage, make_message
from magnetar._producing.partition_producer import PartitionProducer
from magnetar._producing.topic_producer import TopicProducer
from magnetar._public_object import Unpicklable, repr_of
from magnetar._values.value_encoder import encode_value
from magnetar.exceptions import MagnetarException, OperationNotSupported, ProducerQueueIsFull
from magnetar.schema._schema import T
from magnetar_wire.message_id import MessageId

__all__ = ["Producer"]


class Producer(Unpicklable, Generic[T]):
    """Publishes messages to a topic: values of type `T`, which are bytes without a schema.

    `await client.create_producer(…)` creates it.
    """

    def __init__(self, core: TopicProducer) -> None:
        self._core = core
        self._schema = core.options.value_schema
        # For partitions that a send has ever waited for.
        self._waiting: dict[PartitionProducer, _WaitingSends] = {}

    def topic(self) -> str:
        """Return the topic's full name."""
        return self._core.topic

    def producer_name(self) -> str:
        """Return the producer's name: as it was given, or as the broker has chosen it."""
        return self._core.producer_name

    def last_sequence_id(self) -> int:
        """Return the highest sequence id that is known to be persisted. -1: none is."""
        return self._core.last_sequence_id

    def is_connected(self) -> bool:
        """Return whether the owner of each partition is connected. Otherwise messages wait for the connection."""
        return self._core.connected

    async def send(
        self,
        content: T | None,
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
        """Publish a message, and return its id when it is persisted. Sends that are awaited together share batches.

        If too much is pending (`max_pending_messages`, `max_pending_bytes`), this waits, so that any number of sends
        can be awaited together; `block_if_queue_full` makes no difference. Messages of one partition are stored in the
        order of the calls. Cancelling a send that waits for capacity withdraws it; after that, the message is sent all
        the same.
        """
        payload: object = content
        if self._schema is not None:
            payload, partition_key = encode_value(self._schema, content, partition_key)
        message = make_message(
            payload,
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
        return await self._send(message)

    async def _send(self, message: OutgoingMessage) -> MessageId:
        partition = self._core.route(message)
        result: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        if partition.was_opened:
            message = self._core.check_size(partition, message)
        waiting = self._waiting.get(partition)
        if not partition.was_opened or waiting or not _add_message(partition, message, result):
            if waiting is None:
                waiting = self._waiting[partition] = _WaitingSends(partition, self._core)
            await waiting.wait(message, result)
        return await result

    def send_async(self, *arguments: object, **options: object) -> NoReturn:
        """Not supported: `send` is a coroutine here."""
        raise OperationNotSupported(
            "an asyncio producer has no send_async: await send(…), or await many in asyncio.gather(…)"
        )

    async def flush(self) -> None:
        """Return when everything that was sent before is persisted. Raises the first error of the messages."""
        await asyncio.gather(*(waiting.add_mark() for waiting in self._waiting.values() if waiting))
        await self._core.flush()

    async def close(self) -> None:
        """Send what is pending, wait until it is persisted, and close the producer. Sends that wait for capacity raise
        AlreadyClosed."""
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


class _WaitingSends:
    """The line of sends that wait for one partition.

    A task serves the line until it is empty. Whenever there is capacity, it moves all sends that fit into the queue, in
    order, in one step of the loop, so that they share batches like sends that never had to wait. (A batch with a send
    that is awaited is closed at the loop's next step, so a send that is moved in a step of its own would become an
    entry of its own.)

    The key of a send in the line is the future of its result. Cancelling the send removes it from the line. When it was
    moved into the queue it is not in the line any more.
    """

    def __init__(self, partition: PartitionProducer, core: TopicProducer) -> None:
        self._partition = partition
        self._core = core
        # Messages by the futures of their results; None for a mark. OrderedDict removes both the first one and one in
        # the middle in constant time.
        self._line: OrderedDict[asyncio.Future[Any], OutgoingMessage | None] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._line)

    async def wait(self, message: OutgoingMessage, result: asyncio.Future[Any]) -> Any:
        """Line up, and return the result. The message's size was checked, if the partition is open."""
        self._append(result, message)
        try:
            return await result
        finally:
            self._line.pop(result, None)

    def add_mark(self) -> asyncio.Future[None]:
        """Return a future that is done when all sends that are in the line now have left it."""
        mark: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._append(mark, None)
        mark.add_done_callback(lambda mark: self._line.pop(mark, None))
        return mark

    def _append(self, future: asyncio.Future[Any], message: OutgoingMessage | None) -> None:
        self._line[future] = message
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._serve(), name="magnetar waiting sends")

    async def _serve(self) -> None:
        try:
            while self._line:
                result, message = next(iter(self._line.items()))
                if result.done():  # cancelled, and its task has not run yet
                    del self._line[result]
                elif message is None:
                    del self._line[result]
                    result.set_result(None)
                elif not self._partition.was_opened:
                    await self._open_partition()
                elif not self._move_to_queue(result, message):
                    await self._partition.queue.wait_for_capacity()
        finally:
            for result in self._line:  # this task was cancelled, and nothing else would end their waiting
                result.cancel()

    def _move_to_queue(self, result: asyncio.Future[Any], message: OutgoingMessage) -> bool:
        """Move the first send into the queue, or fail it. Return False if there is no capacity left."""
        try:
            if not _add_message(self._partition, message, result):
                return False
        except Exception as error:  # noqa: BLE001 (the sender gets it)
            self._fail(result, error)
        else:
            del self._line[result]
        return True

    async def _open_partition(self) -> None:
        """Open the partition. If that fails, the first send in line fails, and the next one makes the next attempt."""
        try:
            await self._core.open_partition(self._partition)
        except MagnetarException as error:
            self._fail(next((result for result, message in self._line.items() if message is not None), None), error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The producer was closed while it opened the partition: the next attempt raises the reason.
        else:
            for result, message in list(self._line.items()):
                try:
                    if message is not None:
                        self._line[result] = self._core.check_size(self._partition, message)
                except Exception as error:  # noqa: BLE001 (the sender gets it)
                    self._fail(result, error)

    def _fail(self, result: asyncio.Future[Any] | None, error: Exception) -> None:
        if result is not None:
            del self._line[result]
            if not result.done():  # it may be cancelled, and its task has not run yet
                result.set_exception(error)


def _add_message(partition: PartitionProducer, message: OutgoingMessage, result: asyncio.Future[MessageId]) -> bool:
    """Put the message into the partition's queue. Return False if there is no capacity left."""
    try:
        partition.queue.add_message(message, waiter=partial(_set_result, result))
    except ProducerQueueIsFull:
        return False
    return True


def _set_result(result: asyncio.Future[MessageId], outcome: MessageId | MagnetarException) -> None:
    if result.done():  # cancelled
        return
    if isinstance(outcome, MagnetarException):
        result.set_exception(outcome)
    else:
        result.set_result(outcome)
