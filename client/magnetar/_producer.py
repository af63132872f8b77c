"""The synchronous producer: a thin front whose sends never change threads.

`send_async` puts a message into the open batch on the application's own thread (see `_send_queue.py`); the client's
loop takes whole batches from there. What most messages need is in its body: a call would cost as much as all the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from magnetar._batch import Callback
from magnetar._event_loop import background
from magnetar._outgoing_message import check_size, outgoing
from magnetar._public_object import Unpicklable, repr_of
from magnetar._send_queue import HEAD_BYTES, Bounds, SendQueue
from magnetar._topic_producer import TopicProducer
from magnetar.exceptions import MagnetarException
from magnetar_wire.interruptible_wait import acquire
from magnetar_wire.message_id import MessageId

__all__ = ["Producer"]

_NO_ROOM: Final = Bounds(1, 1, 1, 1, 0, 1)


def _nowhere() -> SendQueue:
    """Never has room."""
    return SendQueue(_NO_ROOM, 0, lambda: None, lambda: 0.0)


class _Receipt:
    """Waited for by the thread that sends."""

    __slots__ = ("_lock", "outcome")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.outcome: MessageId | MagnetarException | None = None

    def __call__(self, outcome: MessageId | MagnetarException) -> None:
        self.outcome = outcome
        self._lock.release()

    def wait(self) -> MessageId:
        acquire(self._lock)
        if isinstance(self.outcome, MessageId):
            return self.outcome
        assert self.outcome is not None
        raise self.outcome


class Producer(Unpicklable):
    """Publishes messages on one topic. `Client.create_producer` makes it; any threads may use it at a time.

    A producer that was created before the process forked is closed in the child: create another one there.
    """

    def __init__(self, core: TopicProducer) -> None:
        self._core = core
        self._block = core.options.block_if_queue_full
        self._compression = core.options.compression_type
        # Where a message goes that has nothing but a payload, as long as there is an open batch: nowhere, until one was
        # routed, or where the application routes each one.
        self._queue = _nowhere()

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

    def send(
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
        """Publishes a message, and returns its id when it is durable. The open batch is closed at once.

        `content` None is a null value. Raises what it failed with: `Timeout` if there was no receipt in time, and then
        it may have been stored or not.
        """
        receipt = _Receipt()
        self._send(
            content,
            None,
            receipt,
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
        return receipt.wait()

    def send_async(
        self,
        content: bytes | None,
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
        """Publishes a message and returns at once.

        `callback(result, message_id)` is called on the client's thread of callbacks when the message is durable, or has
        failed; then the id is None. Raises `ProducerQueueIsFull` when as much is pending as may be, unless the producer
        was created with `block_if_queue_full`: then it waits.
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
                if queue.room > 0 and size < queue.byte_room:
                    queue.room -= 1
                    queue.byte_room -= size
                    queue.line += (content, callback)
                    return
        self._send(
            content,
            callback,
            None,
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

    def flush(self) -> None:
        """Sends what is in open batches, and returns when all that was sent before is durable and its callbacks were
        called. Raises the first error that any of it met."""
        background.run(self._core.flush(in_callback=self._core.client.callbacks.is_current))

    def close(self) -> None:
        """Sends what is pending, waits for its receipts, and leaves."""
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

    def _send(self, content: object, callback: Callback | None, receipt: _Receipt | None, *more: object) -> None:
        message = outgoing(content, *more)
        part = self._core.route(
            message.content, message.properties, message.key, message.ordering_key, message.event_time
        )
        if not part.begun:
            background.run(self._core.begin(part))
        queue = part.queue
        check_size(message.content, queue.bounds.max_message_bytes, self._compression)
        queue.add(
            message.content,
            callback,
            receipt,
            message.size,
            message.key,
            message.ordering_key,
            message.properties,
            message.event_time,
            message.sequence_id,
            block=self._block,
            in_callback=self._core.client.callbacks.is_current,
        )
        if message.key is None and not self._core.routes_each:
            self._queue = queue

    def _forked(self, error: MagnetarException) -> None:
        """In a child."""
        self._queue = _nowhere()
        self._core.forked(error)
