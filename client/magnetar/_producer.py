"""The synchronous producer. A send does not change threads.

`send_async` puts a message into the open batch on the application's own thread (`_producing/send_queue.py`), and the
client's loop takes whole batches from there. The fast path, which most messages take, is in the body of `send_async`: a
call would cost as much as all the rest.

When `send_async` returns, the message is checked, and is in the queue of its partition: nothing is sent yet. `send`
returns when it is persisted.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Final, Generic, Self

from magnetar._producing.batch import Callback, Waiter
from magnetar._producing.outgoing_message import HEAD_BYTES, OutgoingMessage, make_message
from magnetar._producing.send_queue import SendLimits, SendQueue
from magnetar._producing.topic_producer import TopicProducer
from magnetar._public_object import Unpicklable, repr_of
from magnetar._threads.event_loop import background
from magnetar.exceptions import MagnetarException
from magnetar.schema._schema import T
from magnetar_wire.interruptible_wait import acquire_lock
from magnetar_wire.message_id import MessageId

__all__ = ["Producer", "SendResult"]


class Producer(Unpicklable, Generic[T]):
    """Publishes messages to a topic: values of type `T`, which are bytes without a schema.

    `Client.create_producer` creates it. Any number of threads may use it.

    A producer that was created before the process forked is closed in the child: create another one there.
    """

    def __init__(self, core: TopicProducer) -> None:
        self._core = core
        self._block = core.options.block_if_queue_full
        # Where the fast path puts messages without a key: the queue to which the last one was routed. It is a queue
        # without capacity before the first one, and if the application routes each message.
        self._queue = _queue_without_capacity()

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

    def send(
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
        """Publish a message, and return its id when it is persisted. The open batch is sent at once.

        `content` None is a null value. Raises EncodeError if the schema can't encode the value, and the error with
        which the message failed. `Timeout` means that there was no result in time. Then the message may have been
        stored or not, unless the error's text excludes that.
        """
        result = SendResult()
        self._send(
            make_message(
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
            ),
            waiter=result,
        )
        return result.wait()

    def send_async(
        self,
        content: T | None,
        callback: Callback | None = None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        """Publish a message, and return at once.

        `callback(result, message_id)` is called on the client's callback thread when the message is persisted, or has
        failed; then the id is None. If too much is pending (`max_pending_messages`, `max_pending_bytes`), this raises
        `ProducerQueueIsFull`, or waits if the producer was created with `block_if_queue_full`.
        """
        if (
            type(content) is bytes
            and properties is None
            and partition_key is None
            and ordering_key is None
            and sequence_id is None
            and event_timestamp is None
            and deliver_at is None
            and deliver_after is None
            and replication_clusters is None
            and not disable_replication
        ):
            queue = self._queue
            size = len(content) + HEAD_BYTES
            with queue.lock:
                if queue.capacity > 0 and size < queue.byte_capacity:
                    queue.capacity -= 1
                    queue.byte_capacity -= size
                    queue.open_batch += (content, callback)
                    return
        self._send(
            make_message(
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
            ),
            callback,
        )

    def flush(self) -> None:
        """Send open batches, and return when everything that was sent before is persisted, and its callbacks were
        called. Raises the first error of the messages."""
        background.run(self._core.flush(in_callback=self._core.client.callbacks.is_current))

    def close(self) -> None:
        """Send what is pending, wait until it is persisted, and close the producer."""
        client = self._core.client
        if not client.closed:
            background.run(client.close_member(self._core))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr_of(self, "topic", "producer_name", "is_connected", "last_sequence_id")

    def _send(self, message: OutgoingMessage, callback: Callback | None = None, waiter: Waiter | None = None) -> None:
        partition = self._core.route(message)
        if not partition.was_opened:
            background.run(self._core.open_partition(partition))
        queue = partition.queue
        message = self._core.check_size(partition, message)
        queue.add_message(
            message, callback, waiter, block=self._block, in_callback=self._core.client.callbacks.is_current
        )
        if message.key is None and not self._core.has_custom_router:
            self._queue = queue

    def _forked(self, error: MagnetarException) -> None:
        """Close the producer in a child."""
        self._queue = _queue_without_capacity()
        self._core.forked(error)


class SendResult:
    """The result of one `send`, for which its thread waits."""

    __slots__ = ("_lock", "outcome")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.outcome: MessageId | MagnetarException | None = None

    def __call__(self, outcome: MessageId | MagnetarException) -> None:
        self.outcome = outcome
        self._lock.release()

    def wait(self) -> MessageId:
        acquire_lock(self._lock)
        if isinstance(self.outcome, MessageId):
            return self.outcome
        assert self.outcome is not None
        raise self.outcome


_NO_CAPACITY: Final = SendLimits(1, 1, 1, 1, 0, 1)


def _queue_without_capacity() -> SendQueue:
    return SendQueue(_NO_CAPACITY, 0, lambda: None, lambda: 0.0)
