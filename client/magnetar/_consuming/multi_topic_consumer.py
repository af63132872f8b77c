"""A consumer, or a reader, of one topic, of several, or of a pattern's topics, on its client's event loop.

All partitions (`consumer_partitions.py`) deliver into one receiver queue, from which the application's consumer takes
messages. If not all can be opened, those that are open are closed, and the consumer is not created. The topics of a
pattern come and go: `pattern_topics.py`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

from magnetar._acknowledging.ack_grouping import AckGroupingTracker
from magnetar._acknowledging.ack_targets import AckTarget
from magnetar._acknowledging.ack_timeouts import AckTimeoutTracker
from magnetar._acknowledging.negative_acks import NegativeAcksTracker
from magnetar._client_core import ClientCore
from magnetar._connections.growth_watch import GrowthWatch
from magnetar._consuming.ack_target_lookup import AckTargetLookup
from magnetar._consuming.consumer_options import ConsumerOptions, ReaderOptions, topic_names, topic_pattern
from magnetar._consuming.consumer_partitions import CONCURRENT_OPENINGS, ConsumerPartitions
from magnetar._consuming.handed_out_reports import HandedOutReports
from magnetar._consuming.mixed_batch_warning import MixedBatchWarning
from magnetar._consuming.partition_consumer import PartitionConsumer
from magnetar._consuming.pattern_topics import PatternTopics
from magnetar._consuming.reconnecting_consumer import ConsumerContext, ReconnectingConsumer
from magnetar._enums import ConsumerType, InitialPosition
from magnetar._letters.letter_rules import make_letter_rules
from magnetar._letters.letters import Letters
from magnetar._message import Message
from magnetar._options import parse_topic_name
from magnetar._patterns.topic_pattern import TopicPattern
from magnetar._prefetching.chunk_assembly import ChunkBudget
from magnetar._prefetching.read_position import Start, make_start
from magnetar._prefetching.receiver_queue import ReceiverQueue
from magnetar.exceptions import AlreadyClosed, InvalidConfiguration, MagnetarException
from magnetar_protos.broker_pb2 import StartAt
from magnetar_wire.message_id import MessageId
from magnetar_wire.topic_name import TopicName

__all__ = ["MultiTopicConsumer", "open_consumer", "open_reader"]

log = logging.getLogger("magnetar")

R = TypeVar("R")


async def open_consumer(
    client: ClientCore, topic: str | Sequence[str] | re.Pattern[str], options: ConsumerOptions
) -> MultiTopicConsumer:
    """Open a consumer of a topic, of several, or of a pattern's topics."""
    client.check_open()
    is_earliest = options.initial_position is InitialPosition.Earliest
    start = Start(StartAt(earliest=True) if is_earliest else StartAt(latest=True))
    pattern = topic_pattern(topic, options)
    names = [] if isinstance(topic, re.Pattern) or pattern is not None else topic_names(topic)
    consumer = MultiTopicConsumer(client, names, options, start, pattern=pattern)
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


class Interceptors(Protocol):
    """What calls the interceptors of a consumer."""

    def before_consume(self, message: Message[Any]) -> Message[Any]:
        """Return the message as the application receives it."""

    def end(self) -> None:
        """The consumer has ended."""


class ListenerInTasks(Protocol):
    """What calls the message listener of an asyncio consumer."""

    async def finish(self, timeout_s: float) -> None:
        """Begin no more calls, and wait for those that run."""


class MultiTopicConsumer:
    """A `Member` of its client."""

    def __init__(
        self,
        client: ClientCore,
        names: Sequence[TopicName],
        options: ConsumerOptions,
        start: Start,
        *,
        durable: bool = True,
        pattern: TopicPattern | None = None,
    ) -> None:
        self.options = options
        self.queue = ReceiverQueue()
        self.queue.request_more = self._request_more
        # Why the consumer has ended.
        self.error: MagnetarException | None = None
        # Ends with the closing that has begun.
        self._closing: asyncio.Future[None] | None = None
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
        consumer_name = options.consumer_name or client.randomness.token(5).hex()
        # What the application has subscribed to. The topic of its retry letters is consumed as well.
        self.names = list(names)
        self.letters = self._make_letters(client, consumer_name)
        self.timeouts = self._make_timeouts() if options.unacked_messages_timeout_ms and durable else None
        self.acks.timeouts = self.nacks.timeouts = self.timeouts
        self.context = ConsumerContext(
            name=consumer_name,
            options=options,
            durable=durable,
            client=client,
            queue=self.queue,
            acks=self.acks,
            nacks=self.nacks,
            timeouts=self.timeouts,
            mixed_batches=MixedBatchWarning() if options.consumer_type is ConsumerType.KeyShared else None,
            chunk_budget=ChunkBudget(options.max_pending_chunked_bytes),
            letters=self.letters,
            on_failed=self._fail,
            report_growth=lambda count: self._growth.report(count),
            on_delivered=None if durable else lambda: self._reports.start(),
        )
        self._client = client
        consumed = [*names, *self._retry_letter_topics()]
        self.topic_partitions = ConsumerPartitions(consumed, self.context, start, lambda: self.error is None)
        # The same list for good: it grows with the topics.
        self.partitions: Sequence[PartitionConsumer] = self.topic_partitions.all
        self.targets: Final = AckTargetLookup(self.topic_partitions)
        self._reports = HandedOutReports(self.clock, self.queue, self.partitions)
        self._growth = GrowthWatch(
            client.clock,
            client.randomness,
            options.auto_update_partitions_interval_seconds,
            self.topic_partitions.open_new,
        )
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._pattern_topics = None if pattern is None else self._make_pattern_topics(pattern, start)
        # What the application subscribed to.
        self.topic_text = ",".join(map(str, self.names)) if pattern is None else pattern.text
        self.listener: ListenerInTasks | None = None
        self.interceptors: Interceptors | None = None

    def _make_letters(self, client: ClientCore, consumer_name: str) -> Letters | None:
        options = self.options
        rules = make_letter_rules(
            options.subscription_name, options.dead_letter_policy, options.enable_retry, self.names
        )
        if rules is None:
            return None
        letters = Letters(
            rules, client, consumer_name, self.acks, self.nacks, max_held_bytes=options.receiver_queue_bytes
        )
        self.nacks.take_dead = letters.take_nacked
        return letters

    def _make_pattern_topics(self, pattern: TopicPattern, start: Start) -> PatternTopics:
        letters = self.letters
        return PatternTopics(
            self._client,
            pattern,
            self.topic_partitions,
            start,
            poll_period_s=self.options.pattern_auto_discovery_period,
            is_excluded=lambda name: letters is not None and letters.rules.is_own_letter_topic(name),
            start_task=self.start_task,
        )

    def _retry_letter_topics(self) -> list[TopicName]:
        topic = None if self.letters is None else self.letters.rules.retry_letter_topic
        return [] if topic is None else [topic]

    def _make_timeouts(self) -> AckTimeoutTracker:
        options = self.options
        return AckTimeoutTracker(
            self.queue,
            self.clock,
            self.acks.distribute,
            timeout_ms=options.unacked_messages_timeout_ms or 0,
            tick_ms=options.ack_timeout_tick_time_ms,
            backoff=options.ack_timeout_redelivery_backoff,
        )

    # Opening.

    async def open(self) -> None:
        """Open all partitions. Raises the error of the first that can't be opened."""
        try:
            await self.topic_partitions.open()
            if self._pattern_topics is not None:
                await self._pattern_topics.open()
        except GeneratorExit:  # destroyed with its loop: nothing can be awaited
            raise
        except BaseException:
            await asyncio.shield(self.topic_partitions.close())
            self.end(AlreadyClosed("the consumer could not be opened"))
            raise
        self._client.add_member(self)
        if self.options.auto_update_partitions_interval_seconds and self.topic_partitions.may_grow:
            self.start_task(self._growth.run())

    async def update_partitions(self) -> None:
        """Look for new partitions now, and open them. Raises the error of the first that can't be opened."""
        self.check_open()
        finding = self.start_task(self.topic_partitions.find_new())  # ends with the consumer
        await asyncio.wait([finding])
        self.check_open()
        if (error := finding.result()) is not None:
            raise error

    def start_task(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Run it until the consumer ends. Call this on the loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def describe_topics(self) -> str:
        if self._pattern_topics is None:
            return self.topic_partitions.describe_topics()
        return f"the {len(self.partitions):,} topics and partitions of the pattern {self.topic_text}"

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

    def pause(self) -> None:
        """Grant no more permits, until `resume`. From any thread."""
        self.context.is_paused = True

    def resume(self) -> None:
        """Grant the permits that are due. From any thread."""
        self.context.is_paused = False
        self.call_soon(self._grant_permits)

    def _grant_permits(self) -> None:
        for partition in self.partitions:
            partition.grant_permits(eager=self.queue.waiting > 0)

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
        return is_read and bool(self.partitions) and all(partition.has_reached_end for partition in self.partitions)

    async def last_message_ids(self) -> list[MessageId]:
        """Return one for each partition; for a partition without messages, the position before the first one."""
        self.check_open()
        return [await partition.position.last_message_id(partition.partition) for partition in self.partitions]

    # Acknowledging.

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
        if isinstance(where, MessageId) and target.at.WhichOneof("at") == "message_id" and len(partitions) > 1:
            self.targets.find(where)
            partitions = [self.targets.find_partition(where)]
        self.acks.distribute()
        await self._for_each(partitions, lambda partition: partition.seek(target))

    async def unsubscribe(self) -> None:
        """Delete the subscription, and close the consumer."""
        self.check_open()
        self.acks.distribute()
        # Also at new partitions, which have the subscription from the growth on.
        await self.topic_partitions.find_new()
        if self._pattern_topics is not None:
            await self._pattern_topics.stop()
        try:
            async with self.topic_partitions.growing:
                # If it is not allowed, because of other consumers, nothing is deleted.
                await self._for_each(self.partitions[:1], PartitionConsumer.unsubscribe)
                await self._for_each(self.partitions[1:], PartitionConsumer.unsubscribe)
                await self.close()
        except BaseException:
            if self._pattern_topics is not None and self.error is None:
                self._pattern_topics.run()
            raise

    async def _for_each(
        self, partitions: Sequence[PartitionConsumer], work: Callable[[PartitionConsumer], Awaitable[None]]
    ) -> None:
        """Do it for many at a time. Raises the first error, when all are done. Topics that leave in the meantime, since
        they were deleted, are left out."""
        slots = asyncio.Semaphore(CONCURRENT_OPENINGS)

        async def work_on(partition: PartitionConsumer) -> None:
            async with slots:
                if partition not in self.topic_partitions.dropped:
                    await work(partition)

        results = await asyncio.gather(*map(work_on, partitions), return_exceptions=True)
        for partition, error in zip(partitions, results, strict=True):
            if error is not None and partition not in self.topic_partitions.dropped:
                raise error

    # Closing.

    def check_open(self) -> None:
        if self.error is not None:
            raise type(self.error)(*self.error.args)

    async def close(self) -> None:
        """Send all acknowledgements, and close the partitions at their brokers. If that has begun already, wait for
        it."""
        if self.error is None and self.listener is not None:
            try:
                await self.listener.finish(self.operations.timeout_s)
            except BaseException:
                self.end(AlreadyClosed("the consumer is closed"))
                raise
        if self.error is not None:
            if self._closing is not None:
                await asyncio.wait([self._closing])
            return
        self.error = AlreadyClosed("the consumer is closed")
        closing = self._closing = asyncio.get_running_loop().create_future()
        try:
            if self._pattern_topics is not None:
                await self._pattern_topics.stop()
            if self.letters is not None:
                await self.letters.close()
            self.acks.distribute()
            await self.topic_partitions.close()
        finally:
            self.end(self.error)
            closing.set_result(None)

    def end(self, error: MagnetarException) -> None:
        """Close the consumer at once. Raise the error in those who wait."""
        self.error = self.error or error
        self._reports.stop()
        if self._pattern_topics is not None:
            self._pattern_topics.end()
        self._client.remove_member(self)
        self.nacks.close()
        self.acks.close()
        if self.letters is not None:
            self.letters.end(error)
        if self.timeouts is not None:
            self.timeouts.close()
        for task in list(self._tasks):
            task.cancel()
        for partition in self.partitions:
            partition.end(error)
        self.queue.fail(error)
        if self.interceptors is not None:
            self.interceptors.end()

    async def wait_ended(self) -> None:
        """Return when the tasks of an ended consumer have ended."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self.topic_partitions.wait_ended()
        if self.letters is not None:
            await self.letters.wait_ended()

    def _fail(self, partition: ReconnectingConsumer, error: MagnetarException) -> None:
        if self._pattern_topics is not None and partition.is_of_pattern and isinstance(partition, PartitionConsumer):
            self._pattern_topics.left(partition, error)
            return
        log.error("the consumer of %s has failed, and is closed: %s", partition.topic, error)
        self.end(error)

    def forked(self, error: MagnetarException) -> None:
        """In a child after a fork: raise the error in each use. Nothing else of the consumer is used there."""
        self.error, self._closing = error, None
        self.queue.replace_lock()
        self.queue.fail(error)
