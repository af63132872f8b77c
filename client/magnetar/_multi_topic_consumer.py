"""A consumer, or a reader, on its client's event loop: a `PartitionConsumer` for each topic or partition.

All partitions deliver into one receiver queue, from which the application's consumer takes messages.

**All or none.** The first partition is opened alone, then the others at once. If any can't be opened, all are closed,
and the consumer is not created. Two consumers that both want an exclusive subscription of a partitioned topic meet at
the first partition, so one of them gets all. After that each partition reopens alone.

**New partitions** (`_growth_watch.py`) are read from the earliest message, since everything in them was published after
the consumer was created. Those that can't be opened are retried, and the others are read in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

from magnetar._acknowledgments import AckGroupingTracker, AckTarget, MessageIdTarget
from magnetar._chunk_assembly import ChunkBudget
from magnetar._client_core import ClientCore
from magnetar._consumer_options import ConsumerOptions, ReaderOptions, topic_names
from magnetar._enums import InitialPosition
from magnetar._growth_watch import GrowthWatch
from magnetar._message import DeliveryEpoch, Message, PickledOrigin
from magnetar._negative_acks import NegativeAcksTracker
from magnetar._options import parse_topic_name
from magnetar._partition_consumer import PartitionConsumer
from magnetar._read_position import make_start
from magnetar._receiver_queue import ReceiverQueue
from magnetar._reconnecting_consumer import ConsumerContext, ReconnectingConsumer
from magnetar.exceptions import AlreadyClosed, InvalidConfiguration, InvalidMessage, MagnetarException
from magnetar_protos.broker_pb2 import StartAt
from magnetar_wire.clock import Timer
from magnetar_wire.message_id import MessageId
from magnetar_wire.topic_name import TopicName

__all__ = ["MultiTopicConsumer", "open_consumer", "open_reader"]

log = logging.getLogger("magnetar")

R = TypeVar("R")

# How often a reader reports which messages it has handed out, while there are others.
_MIN_REPORT_INTERVAL_S: Final = 0.1
_MAX_REPORT_INTERVAL_S: Final = 0.5


async def open_consumer(
    client: ClientCore, topic: str | Sequence[str] | re.Pattern[str], options: ConsumerOptions
) -> MultiTopicConsumer:
    """Open a consumer of a topic, or of several."""
    client.check_open()
    start = StartAt(earliest=True) if options.initial_position is InitialPosition.Earliest else StartAt(latest=True)
    consumer = MultiTopicConsumer(client, topic_names(topic), options, start)
    await consumer.open()
    return consumer


async def open_reader(
    client: ClientCore, topic: str, start: MessageId | int, options: ReaderOptions, subscription_name: str | None = None
) -> MultiTopicConsumer:
    """Open the consumer of a reader. Its subscription has no other consumer, and is not durable. Without a name, it
    gets a random one."""
    client.check_open()
    name = parse_topic_name(topic)
    if not isinstance(start, (MessageId, int)) or isinstance(start, bool):
        raise InvalidConfiguration(f"start_message_id is a MessageId or a time in ms, not {start!r}")
    token = client.randomness.token(5).hex()
    prefix = options.subscription_role_prefix
    random_name = f"{prefix}-reader-{token}" if prefix else f"reader-{token}"
    consumer_options = options.to_consumer_options(subscription_name or random_name)
    start_at = make_start(start, inclusive=options.start_message_id_inclusive)
    consumer = MultiTopicConsumer(client, [name], consumer_options, start_at, durable=False)
    await consumer.open()
    return consumer


class MultiTopicConsumer:
    """A `Member` of its client."""

    def __init__(
        self,
        client: ClientCore,
        names: Sequence[TopicName],
        options: ConsumerOptions,
        start: StartAt,
        *,
        durable: bool = True,
    ) -> None:
        self.names = list(names)
        self.options = options
        self.queue = ReceiverQueue()
        self.queue.request_more = self._request_more
        self.partitions: list[PartitionConsumer] = []
        # Why the consumer has ended.
        self.error: MagnetarException | None = None
        self.call_soon: Final = client.call_soon
        self.clock = client.clock
        self.operations = client.operations
        self.acks = AckGroupingTracker(
            self.call_soon,
            self.clock,
            self._send_partitions_acks,
            grouping_time_ms=options.ack_grouping_time_ms,
            max_size=options.ack_grouping_max_size,
        )
        self.nacks = NegativeAcksTracker(options.backoff, self.clock, self.call_soon, self.acks.distribute)
        self.context = ConsumerContext(
            name=options.consumer_name or client.randomness.token(5).hex(),
            options=options,
            durable=durable,
            client=client,
            queue=self.queue,
            acks=self.acks,
            nacks=self.nacks,
            chunk_budget=ChunkBudget(options.max_pending_chunked_bytes),
            on_failed=self._fail,
            report_growth=lambda partitions: self._growth.report(partitions),
            on_delivered=None if durable else self._report_soon,
        )
        # Of a reader: reports which messages are handed out, while there are others.
        self._report_timer: Timer | None = None
        self._report_interval_s = _MIN_REPORT_INTERVAL_S
        self._reported: list[Message[Any] | None] = []
        self._client = client
        self._start = start
        # The number of partitions of each topic, as far as is known; 0: it has none.
        self._partition_counts: dict[TopicName, int] = {}
        # Replaced by a copy when it changes, since other threads read it.
        self._by_topic: dict[str, PartitionConsumer] = {}
        self._growth = GrowthWatch(
            client.clock,
            client.randomness,
            options.auto_update_partitions_interval_seconds,
            self._count_opened_partitions,
        )
        # Held while new partitions are looked for and opened, and while none may be.
        self._growing = asyncio.Lock()
        self._tasks: dict[asyncio.Task[Any], None] = {}

    # Opening.

    async def open(self) -> None:
        """Open all partitions. Raises the error of the first that can't be opened."""
        try:
            for name in self.names:
                self._partition_counts[name] = 0 if name.is_partition else await self._count_partitions(name)
            names = [part for name in self.names for part in _name_partitions(name, self._partition_counts[name])]
            for partition in self._add_partitions(names, self._start):
                if not self.context.durable and self.options.start_message_id_inclusive:
                    await partition.position.start_with_last_message()
            self._check_partitions()
            await self.partitions[0].open()
            await self._open_all(self.partitions[1:])
            if not self.context.durable:
                for partition in self.partitions:
                    await partition.position.find_behind()
        except GeneratorExit:  # destroyed with its loop: nothing can be awaited
            raise
        except BaseException:
            await asyncio.shield(self._close_partitions())
            self.end(AlreadyClosed("the consumer could not be opened"))
            raise
        self._client.add_member(self)
        if self.options.auto_update_partitions_interval_seconds and any(self._partition_counts.values()):
            self.start_task(self._growth.run())

    def _check_partitions(self) -> None:
        if len(self.partitions) == 1:
            return
        if self._start.WhichOneof("at") == "message_id":
            raise InvalidConfiguration(
                f"{self.names[0]} has {len(self.partitions)} partitions, and a message id belongs to one of them: read "
                "that partition, or start at earliest, latest or a time"
            )
        if self.options.receiver_queue_size == 0:
            raise InvalidConfiguration(
                f"receiver_queue_size = 0 needs a single topic without partitions, not {len(self.partitions)} topics "
                "or partitions: use 1 or more"
            )

    async def _count_partitions(self, name: TopicName, *, create: bool = True) -> int:
        return await self._client.lookup.count_partitions(str(name), create)

    def _add_partitions(self, names: Sequence[TopicName], start: StartAt) -> list[PartitionConsumer]:
        added = [PartitionConsumer(name, self.context, start) for name in names]
        self.partitions += added
        self._by_topic = self._by_topic | {partition.topic: partition for partition in added}
        self._share_queue()
        return added

    def _share_queue(self) -> None:
        """Divide the receiver queue among the partitions."""
        options, count = self.options, len(self.partitions)
        size = options.receiver_queue_size
        if count > 1:
            size = min(size, max(1, options.max_total_receiver_queue_size_across_partitions // count))
        for partition in self.partitions:
            partition.permits.set_limits(size, max(1, options.receiver_queue_bytes // count))

    async def _open_all(self, partitions: Sequence[PartitionConsumer]) -> None:
        """Open them at once. If one can't be opened, cancel the others."""
        tasks = [asyncio.get_running_loop().create_task(partition.open()) for partition in partitions]
        try:
            for task in tasks:
                await task
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            for task in tasks:  # retrieve the errors, so that asyncio doesn't log them
                task.cancelled() or task.exception()

    async def _count_opened_partitions(self) -> int | None:
        """Open new partitions. Return the highest number of partitions of a topic; None: not all could be opened."""
        if await self._find_new_partitions() is not None:
            return None
        return max(self._partition_counts.values())

    async def update_partitions(self) -> None:
        """Look for new partitions now, and open them. Raises the error of the first that can't be opened."""
        self.check_open()
        finding = self.start_task(self._find_new_partitions())  # ends with the consumer
        await asyncio.wait([finding])
        self.check_open()
        if (error := finding.result()) is not None:
            raise error

    async def _find_new_partitions(self) -> MagnetarException | None:
        """Open all that can be opened. Return the first error."""
        first: MagnetarException | None = None
        async with self._growing:
            for name in [name for name, count in self._partition_counts.items() if count and self.error is None]:
                try:
                    await self._open_new_partitions(name, await self._count_partitions(name, create=False))
                except MagnetarException as error:
                    log.info("new partitions of %s could not be opened: %s", name, error)
                    first = first or error
        return first

    async def _open_new_partitions(self, name: TopicName, now: int) -> None:
        """Open all that can be opened. Raises the error of the first that can't be."""
        new = [part for part in _name_partitions(name, now) if str(part) not in self._by_topic]
        self._partition_counts[name] = max(now, self._partition_counts[name])
        if not new:
            return
        added = self._add_partitions(new, StartAt(earliest=True))
        failed = added
        try:
            results = await asyncio.gather(*(partition.open() for partition in added), return_exceptions=True)
            failed = [partition for partition, result in zip(added, results, strict=True) if result is not None]
        finally:
            if failed:
                await asyncio.shield(self._remove_partitions(failed))
        for result in results:
            if result is not None:
                raise result

    async def _remove_partitions(self, partitions: Sequence[PartitionConsumer]) -> None:
        """Remove partitions that were not opened."""
        removed = set(partitions)
        self.partitions[:] = [partition for partition in self.partitions if partition not in removed]
        self._by_topic = {topic: partition for topic, partition in self._by_topic.items() if partition not in removed}
        self._share_queue()
        await asyncio.gather(*(partition.close() for partition in partitions))

    def start_task(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Run it until the consumer ends. Call this on the loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def describe_topics(self) -> str:
        """Name every topic, and its partitions."""
        return ", ".join(
            f"{name} (partitions 0 to {count - 1})" if (count := self._partition_counts.get(name, 0)) else str(name)
            for name in self.names
        )

    # Receiving.

    @property
    def is_connected(self) -> bool:
        return self.error is None and all(partition.is_connected for partition in self.partitions)

    def _request_more(self) -> None:
        """Grant all permits, since the application waits for more messages than there are. On the loop."""
        for partition in self.partitions:
            partition.grant_permits(eager=True)
        if self.queue.batches_waiting and all(partition.permits.outstanding <= 0 for partition in self.partitions):
            self.queue.set_full()

    async def has_message_available(self) -> bool:
        """Whether a read will return, if no other thread or task reads."""
        self.check_open()
        if len(self.queue):
            return True
        for partition in self.partitions:
            if await partition.position.has_more():
                return True
        return False

    def has_reached_end(self) -> bool:
        """Whether all topics are terminated and all of their messages acknowledged. From any thread."""
        self.check_open()
        # After a reconnection the broker knows of no message that a reader has still in its queue.
        is_read = self.context.durable or not len(self.queue)
        return is_read and all(partition.has_reached_end for partition in self.partitions)

    def _report_soon(self) -> None:
        """Messages were delivered to a reader. A reader acknowledges what it has handed out when it grants permits,
        which may be never after the last message: but the broker reports the end when all is acknowledged."""
        self._report_interval_s = _MIN_REPORT_INTERVAL_S
        if self._report_timer is None and self.error is None:
            self._report_timer = self.clock.call_later(self._report_interval_s, self._report_handed_out)

    def _report_handed_out(self) -> None:
        are_left = bool(len(self.queue))  # before counting: other threads take them
        reported = [partition.acknowledge_handed_out() for partition in self.partitions]
        self._report_timer = None
        if not are_left or self.error is not None:
            self._reported = []
            return
        # While the application takes nothing, this is rarer.
        is_idle = reported == self._reported
        interval_s = min(2 * self._report_interval_s, _MAX_REPORT_INTERVAL_S) if is_idle else _MIN_REPORT_INTERVAL_S
        self._reported, self._report_interval_s = reported, interval_s
        self._report_timer = self.clock.call_later(interval_s, self._report_handed_out)

    async def last_message_ids(self) -> list[MessageId]:
        """Return one for each partition; for a partition without messages, the position before the first one."""
        self.check_open()
        return [await partition.position.last_message_id(partition.partition) for partition in self.partitions]

    # Acknowledging.

    def find_target(self, what: object, *, cumulative: bool = False) -> AckTarget:
        """Return what a message or message id stands for. From any thread.

        A message knows its partition. An id names it by its topic, or by the number of the partition if the consumer
        has one partitioned topic, and needs neither if there is one partition. An id that was deserialized may lack the
        topic: `MessageId.deserialize(data, topic=…)`. A pickled message stands for its id.

        Raises InvalidMessage if this consumer can't have received it.
        """
        if isinstance(what, Message) and isinstance(what._entry.epoch.origin, PickledOrigin):
            what = what.message_id()
        if isinstance(what, Message):
            entry = what._entry
            origin: PartitionConsumer = entry.epoch.origin
            if self._by_topic.get(origin.topic) is not origin:
                raise InvalidMessage(f"{what!r} was received by another consumer: acknowledge it there")
            if not cumulative:
                return what
            index = entry.batch_index(what._row)
            return MessageIdTarget(entry.epoch, entry.ledger_id, entry.entry_id, index, entry.batch_size, True)
        if isinstance(what, MessageId):
            partition = self.find_partition(what)
            index, size = what.batch_index(), what.batch_size()
            if index >= 0 and not size:
                raise InvalidMessage(
                    f"{what!r} has a batch index and no batch size: use the id that the message was received with"
                )
            if not 0 <= index < size and index >= 0:
                raise InvalidMessage(f"{what!r} has a batch index outside of its batch")
            if what.ledger_id() < 0 or what.entry_id() < 0 or what == MessageId.latest:
                raise InvalidMessage(f"{what!r} is not the id of a message")
            # The id of a received message belongs to the epoch of its delivery, any other to the current epoch.
            epoch = getattr(what, "_delivery", None)
            if not isinstance(epoch, DeliveryEpoch) or epoch.origin is not partition:
                epoch = partition.epoch
            return MessageIdTarget(epoch, what.ledger_id(), what.entry_id(), index, size, cumulative)
        raise TypeError(f"a Message or MessageId can be acknowledged, not {type(what).__name__}")

    def find_partition(self, message_id: MessageId) -> PartitionConsumer:
        """Raises InvalidMessage if the id doesn't say which partition it belongs to."""
        by_topic = self._by_topic
        if message_id.topic_name():
            partition = by_topic.get(message_id.topic_name())
            if partition is None:
                raise InvalidMessage(f"{message_id!r} is of a topic that this consumer does not read")
            return partition
        found = list(by_topic.values())
        if len(found) > 1:
            found = [partition for partition in found if partition.partition == message_id.partition() >= 0]
        if len(found) != 1:
            raise InvalidMessage(
                f"{message_id!r} does not say of which topic it is, and this consumer reads {len(by_topic)}: "
                "pass the topic to MessageId.deserialize"
            )
        return found[0]

    async def acknowledge(self, targets: Sequence[AckTarget]) -> None:
        """Acknowledge at once, with all that is collected. Returns when it is durable."""
        self.check_open()
        if targets:
            receipt = self.acks.send_with_receipt(targets)
            await self.operations.wait_for(receipt, "the broker has not answered an acknowledgement")

    def _send_partitions_acks(self) -> None:
        for partition in self.partitions:
            partition.send_acks()

    def redeliver_all(self) -> None:
        """Request the redelivery of everything that is not acknowledged. From any thread.

        No message that is in the queue now is handed out. A cumulative acknowledgement of it would acknowledge messages
        that are redelivered.
        """
        for partition in self.partitions[:]:
            if partition.is_persistent:
                self.queue.close_partition(partition.partition_queue)
        self.call_soon(self._request_redelivery)

    def _request_redelivery(self) -> None:
        if self.error is None:
            self.acks.distribute()
            for partition in self.partitions:
                self.nacks.forget_partition(partition)
                partition.redeliver(None)

    # The subscription.

    @property
    def delivers_in_order(self) -> bool:
        return self.options.delivers_in_order

    async def seek(self, where: MessageId | int) -> None:
        """Move the subscription to a time or an end of the log; with a message's id, only in the partition of that."""
        self.check_open()
        if not isinstance(where, (MessageId, int)) or isinstance(where, bool):
            raise TypeError(f"seek takes a MessageId or a time in ms, not {type(where).__name__}")
        target = make_start(where, inclusive=self.options.start_message_id_inclusive)
        partitions = self.partitions[:]
        if isinstance(where, MessageId) and target.WhichOneof("at") == "message_id" and len(partitions) > 1:
            self.find_target(where)
            partitions = [self.find_partition(where)]
        self.acks.distribute()
        for partition in partitions:
            await partition.seek(target)

    async def unsubscribe(self) -> None:
        """Delete the subscription, and close the consumer."""
        self.check_open()
        self.acks.distribute()
        # Also at new partitions, which have the subscription from the growth on.
        await self._find_new_partitions()
        async with self._growing:
            for partition in self.partitions:
                await partition.unsubscribe()
            await self.close()

    # Closing.

    def check_open(self) -> None:
        if self.error is not None:
            raise type(self.error)(*self.error.args)

    async def close(self) -> None:
        """Send all acknowledgements, and close the partitions at their brokers."""
        if self.error is not None:
            return
        self.error = AlreadyClosed("the consumer is closed")
        self.acks.distribute()
        try:
            await self._close_partitions()
        finally:
            self.end(self.error)

    async def _close_partitions(self) -> None:
        tasks = [asyncio.get_running_loop().create_task(partition.close()) for partition in self.partitions]
        if tasks:
            try:
                await asyncio.wait(tasks)
            finally:
                for task in tasks:
                    task.cancel()

    def end(self, error: MagnetarException) -> None:
        """Close the consumer at once. Raise the error in those who wait."""
        self.error = self.error or error
        if self._report_timer is not None:
            self._report_timer.cancel()
        self._client.remove_member(self)
        self.nacks.close()
        self.acks.close()
        for task in list(self._tasks):
            task.cancel()
        for partition in self.partitions:
            partition.end(error)
        self.queue.fail(error)

    async def wait_ended(self) -> None:
        """Return when the tasks of an ended consumer have ended."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        for partition in self.partitions:
            await partition.wait_ended()

    def _fail(self, partition: ReconnectingConsumer, error: MagnetarException) -> None:
        log.error("the consumer of %s has failed, and is closed: %s", partition.topic, error)
        self.end(error)

    def forked(self, error: MagnetarException) -> None:
        """In a child after a fork: raise the error in each use. Nothing else of the consumer is used there."""
        self.error = error
        self.queue.replace_lock()
        self.queue.fail(error)


def _name_partitions(name: TopicName, count: int) -> list[TopicName]:
    return [name.partition(index) for index in range(count)] if count else [name]
