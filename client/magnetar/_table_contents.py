"""The contents of a table view, and the reading that keeps it up to date, on the client's loop.

A reader delivers all messages of the topic from the earliest on. One task takes them from its receiver queue, a batch
at a time, and has the view apply each batch: a synchronous view on a thread of its own (`_table_view.py`), because
schemas and callbacks are the application's code, an asyncio view in the task (`aio/_table_view.py`). The next batch is
taken when the last one is applied. So a slow callback slows its view's reading down, and no more than a receiver queue
waits.

Only the view's thread or task changes `values`. Any thread may read it: each read is one operation of a dict.

**Refreshing.** A partition's position counts as applied when a message at it or behind it was. A topic may also end in
entries without a message to apply, such as a marker. Then everything is applied when all of it was delivered, and
nothing of the partition waits in the queue or in a batch. Batches are taken on the loop, so no message is between the
two when the loop looks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._consuming.partition_consumer import PartitionConsumer
from magnetar._consuming.receiver import TaskReceiver
from magnetar._message import Message
from magnetar._prefetching.read_position import BatchPosition, get_position
from magnetar.exceptions import MagnetarException, SchemaUnavailable, Timeout

__all__ = ["Change", "TableCallback", "TableContents", "follow_table", "refresh_table"]

log = logging.getLogger("magnetar")

# The most that is applied at a time.
_MAX_BATCH_MESSAGES: Final = 1_000
_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
# After this time a message whose schema version is not available is decoded again.
_SCHEMA_PAUSE_S: Final = 1.0

V = TypeVar("V")
C = TypeVar("C", contravariant=True)


class TableCallback(Protocol[C]):
    """Gets a key and its value; None: the key was removed."""

    def __call__(self, key: str, value: C | None, /) -> object: ...


# A key and its value; None: the key was removed.
Change = tuple[str, V | None]


class TableContents(Generic[V]):
    def __init__(self, reader: MultiTopicConsumer) -> None:
        self.reader = reader
        # The latest value of each key.
        self.values: dict[str, V] = {}
        # Called with each change. Replaced by a copy when one is added.
        self.callbacks: tuple[TableCallback[V], ...] = ()
        # Up to where each partition is applied, and whether a batch is being applied now. Of the loop.
        self.applied: dict[PartitionConsumer, BatchPosition] = {}
        self.is_applying = False
        # Why the next message can't be applied now. Set by the view's thread or task.
        self.waits_for: SchemaUnavailable | None = None

    def apply_message(self, message: Message[Any]) -> Change[V] | None:
        """Store or remove the message's value. Return the change; None: the message has no key, or no value that can be
        decoded. Raises SchemaUnavailable if a later call may succeed."""
        self.waits_for = None
        if not message.has_key():
            return None
        key = message.partition_key()
        value: V | None = None
        if message.data():  # an empty payload removes the key, as in Pulsar
            try:
                value = message.value()
            except SchemaUnavailable as error:
                self.waits_for = error
                raise
            except Exception:  # a schema of the application may raise any
                log.exception(
                    "the table view keeps its former value of %r, since this can't be decoded: %r", key, message
                )
                return None
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value
        return key, value

    def count_applied(self, messages: Iterable[Message[Any]]) -> None:
        """On the loop."""
        last = {message._entry.epoch.origin: message for message in messages}
        for origin, message in last.items():
            self.applied[origin] = get_position(message)
        for partition in self.reader.partitions:
            partition.position.wake()


async def follow_table(contents: TableContents[V], apply: Callable[[deque[Message[Any]]], Awaitable[None]]) -> None:
    """Have all messages applied, in order, until the reader ends.

    `apply` removes the messages that it has applied. It leaves those whose schema version is not available: they are
    applied later.
    """
    receiver = TaskReceiver(contents.reader)
    queue = contents.reader.queue
    while True:
        try:
            batch = [await receiver.receive(None)]
        except MagnetarException:  # the reader has ended, which was logged or requested
            return
        with queue.lock:
            queue.take_batch_locked(batch, _MAX_BATCH_MESSAGES, _MAX_BATCH_BYTES)
        contents.is_applying = True
        try:
            await _apply_all(contents, batch, apply)
        finally:
            contents.is_applying = False
        contents.count_applied(batch)


async def _apply_all(
    contents: TableContents[V], batch: list[Message[Any]], apply: Callable[[deque[Message[Any]]], Awaitable[None]]
) -> None:
    left = deque(batch)
    count = len(left) + 1
    while True:
        await apply(left)
        if not left:
            return
        if len(left) < count:  # else this was logged before
            count = len(left)
            log.warning("a table view waits for the schema version of %r", left[0])
            contents.count_applied(batch[:-count])
        await contents.reader.clock.sleep(_SCHEMA_PAUSE_S)


async def refresh_table(contents: TableContents[V]) -> None:
    """Return when everything that was published before the call is applied. Raises SchemaUnavailable if a schema
    version is still not available when the operation's time is over."""
    reader = contents.reader
    deadline = reader.operations.deadline()
    await reader.update_partitions()
    ends = [(partition, await partition.position.find_end()) for partition in reader.partitions[:]]
    for partition, end in ends:
        while end is not None and not _is_applied(contents, partition, end):
            reader.check_open()
            try:
                await partition.position.wait_for_delivery()
                is_over = reader.clock.monotonic() >= deadline
            except Timeout:
                if contents.waits_for is None:
                    raise
                is_over = True
            if is_over and contents.waits_for is not None:
                raise SchemaUnavailable(*contents.waits_for.args)


def _is_applied(contents: TableContents[V], partition: PartitionConsumer, end: BatchPosition) -> bool:
    applied = contents.applied.get(partition)
    if applied is not None and applied >= end:
        return True
    return not contents.is_applying and partition.position.has_delivered(end)
