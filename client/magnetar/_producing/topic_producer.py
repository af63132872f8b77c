"""A producer of one topic: a `PartitionProducer` for each partition, and the router that chooses between them.

An exclusive producer has all partitions or none: the first is opened first, then the others, also with
`lazy_start_partitioned_producers` (`exclusive_opening.py`), and if it loses one, it ends.

At creation all partitions are opened, or the creation fails. With `lazy_start_partitioned_producers` only one is, and
each other one when a message is routed to it. All have the name that the broker has given to the first.

**New partitions** (`_connections/growth_watch.py`) are opened before any message is routed to one of them: all of them,
or the next attempt opens all. Messages that were routed before stay in their partitions.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable

from magnetar._client_core import ClientCore
from magnetar._connections.growth_watch import GrowthWatch
from magnetar._enums import BatchingType, ProducerAccessMode
from magnetar._options import ProducerOptions, parse_topic_name
from magnetar._producing.exclusive_opening import open_exclusively, open_with_epoch, options_of_other_partitions
from magnetar._producing.outgoing_message import OutgoingMessage
from magnetar._producing.partition_producer import PartitionProducer
from magnetar._producing.routing import Router
from magnetar._producing.send_queue import SendLimits
from magnetar.exceptions import AlreadyClosed, InvalidConfiguration, MagnetarException, NotFound
from magnetar.schema._schema import SchemaInfo
from magnetar_wire.limits import MAX_MESSAGE_BYTES
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicProducer", "open_producer"]

log = logging.getLogger(__name__)
# Of max_pending_bytes, which partitions share, each gets this much at least.
_LEAST_PENDING_BYTES = 1024 * 1024


async def open_producer(client: ClientCore, topic: str, options: ProducerOptions) -> TopicProducer:
    """Return a producer, opened, which the client closes when it is closed itself."""
    client.check_open()
    name = parse_topic_name(topic)
    if options.chunking_enabled and not name.is_persistent:
        raise InvalidConfiguration(
            f"chunking_enabled = True, and {name} is not persistent: only persistent topics can have chunks"
        )
    producer = TopicProducer(client, name, await _bind_schema(client, name, options))
    await producer.open()
    client.add_member(producer)
    return producer


async def _bind_schema(client: ClientCore, topic: TopicName, options: ProducerOptions) -> ProducerOptions:
    """Give a schema that takes the topic's (`AutoProduceBytesSchema`) the latest version: a copy, for this producer."""
    schema = options.value_schema
    if schema is None:
        return options
    from magnetar.schema._auto import AutoProduceBytesSchema

    if not isinstance(schema, AutoProduceBytesSchema):
        return options
    try:
        answer = await client.lookup.schema(str(topic), b"")
        latest = SchemaInfo.from_message(answer.schema)
    except NotFound:
        latest = None
    bound = copy.copy(schema)
    bound.set_topic_schema(latest)
    return options.model_copy(update={"value_schema": bound})


class TopicProducer:
    """A `Member` of its client."""

    def __init__(
        self, client: ClientCore, topic: TopicName, options: ProducerOptions, *, initial_subscription: str = ""
    ) -> None:
        """`initial_subscription`: a subscription that the topic has before the first message is stored."""
        self.topic = str(topic)
        self._initial_subscription = initial_subscription
        self.options = options
        self.client = client
        # Replaced as a whole when the topic gets more partitions, because other threads read it.
        self.partitions: list[PartitionProducer] = []
        self._name = topic
        # Whether the application routes each message.
        self.has_custom_router = False
        self._is_partitioned = False
        self._router: Router | None = None
        # Tasks that open a partition on demand, by its index.
        self._opening: dict[int, asyncio.Task[None]] = {}
        # Its task runs while the producer is open.
        self._growth = GrowthWatch(
            client.clock, client.randomness, options.auto_update_partitions_interval_seconds, self._open_new_partitions
        )
        self._growth_watch: asyncio.Task[None] | None = None
        # An exclusive producer: what opens its other partitions, and the error by which it has lost one.
        self._opening_others: asyncio.Task[list[PartitionProducer]] | None = None
        self._lost: MagnetarException | None = None
        # For the interceptors. Called on the loop.
        self.on_partitions_changed: Callable[[int], object] | None = None
        self.on_ended: Callable[[], object] | None = None

    @property
    def producer_name(self) -> str:
        return self.options.producer_name or self.partitions[0].producer_name

    @property
    def last_sequence_id(self) -> int:
        return max(partition.last_sequence_id for partition in self.partitions)

    @property
    def connected(self) -> bool:
        return all(partition.connected for partition in self.partitions if partition.was_opened)

    async def open(self) -> None:
        """Open the producer. If it raises an error, nothing is open."""
        count = await self.client.lookup.count_partitions(self.topic)
        self._is_partitioned = count > 0
        self.has_custom_router = self._is_partitioned and self.options.message_router is not None
        router = self._router = Router(self.options, max(1, count), self.client.randomness)
        partitions = self.partitions = self._create_partitions(0, max(1, count))
        first = partitions[0 if self._is_exclusive else router.first]
        try:
            await first.open()
            self.options = self.options.model_copy(update={"producer_name": first.producer_name})
            for partition in partitions:
                partition.producer_name = first.producer_name
            if self._is_exclusive:
                await self._open_others(first)
            elif not self.options.lazy_start_partitioned_producers:
                await _open_all([partition for partition in partitions if partition is not first])
        except BaseException as error:
            reason = error if isinstance(error, MagnetarException) else MagnetarException("it was not opened")
            self.end(reason)
            raise
        if self._is_partitioned and self.options.auto_update_partitions_interval_seconds:
            self._growth_watch = asyncio.get_running_loop().create_task(self._growth.run())

    @property
    def _is_exclusive(self) -> bool:
        return self.options.access_mode is not ProducerAccessMode.Shared

    async def _open_others(self, first: PartitionProducer) -> None:
        """Open the other partitions of an exclusive producer, also those that were added while it waited."""
        count = len(self.partitions)
        if self._is_partitioned:
            count = max(count, await self.client.lookup.count_partitions(self.topic, create=False))
        self._opening_others = asyncio.get_running_loop().create_task(
            open_exclusively(first, lambda: self._create_partitions(1, count))
        )
        try:
            self.partitions = [first, *await self._opening_others]
        except asyncio.CancelledError:
            if self._lost is None:
                self._opening_others.cancel()
                await asyncio.wait([self._opening_others])
                raise
        finally:
            self._opening_others = None
        if self._lost is not None:
            raise self._lost

    def _lose(self, error: MagnetarException) -> None:
        """End, because another producer may have been admitted to a partition."""
        if self._lost is None:
            self._lost = error
            if self._opening_others is not None:
                self._opening_others.cancel()
            self.end(error)

    def route(self, message: OutgoingMessage) -> PartitionProducer:
        """Return the partition that the message goes to. Any thread may call this.

        If the partition has no `was_opened`, the caller opens it first: `open_partition`.
        """
        partitions, router = self.partitions, self._router
        if not self._is_partitioned:
            return partitions[0]
        assert router is not None
        return partitions[router.choose(message, partitions)]

    def check_size(self, partition: PartitionProducer, message: OutgoingMessage) -> OutgoingMessage:
        """Return the message as it is sent to a partition that was opened: with chunking, a large one is compressed.

        Raises MessageTooBig if it is too large. Any thread may call this.
        """
        options, max_message_bytes = self.options, partition.queue.limits.max_message_bytes
        if options.chunking_enabled:
            return message.compress_for_chunks(max_message_bytes, options.compression_type)
        message.check_size(max_message_bytes, options.compression_type)
        return message

    async def open_partition(self, partition: PartitionProducer) -> None:
        """Open a partition that was not opened at creation. Raises the error that ended the producer, if one did."""
        partition.queue.check_open()
        index = self.partitions.index(partition)
        if not partition.was_opened and index not in self._opening:
            task = self._opening[index] = asyncio.get_running_loop().create_task(partition.open())
            task.add_done_callback(lambda _: self._opening.pop(index))
        if index in self._opening:
            await asyncio.shield(self._opening[index])

    async def flush(self, *, in_callback: bool = False) -> None:
        """Return when everything that was sent before has a result. Raises the first error of the messages."""
        await _wait_for_all(
            [
                asyncio.get_running_loop().create_task(partition.flush(in_callback=in_callback))
                for partition in self.partitions
                if partition.was_opened
            ]
        )

    async def close(self) -> None:
        """Send what is pending, wait for the results, and close the producer at the brokers."""
        self._stop_growth_watch()
        # The next exclusive producer begins with the first partition: it must find the others free.
        last = self.partitions[:1] if self._is_exclusive else []
        for partitions in (self.partitions[len(last) :], last):
            await _wait_for_all(
                [
                    asyncio.get_running_loop().create_task(partition.close())
                    for partition in partitions
                    if partition.was_opened
                ]
            )
        self.end(AlreadyClosed(f"the producer on {self.topic} is closed"))

    def end(self, error: MagnetarException) -> None:
        """End at once. Pending messages fail, and later sends raise the error."""
        self._stop_growth_watch()
        for partition in self.partitions:
            partition.end(error)
        on_ended, self.on_ended = self.on_ended, None
        if on_ended is not None:
            on_ended()

    def forked(self, error: MagnetarException) -> None:
        """Close the producer in a child, without using anything of the parent's."""
        self._growth_watch, self._opening = None, {}
        for partition in self.partitions:
            partition.forked(error)

    async def wait_ended(self) -> None:
        """Return when an ended producer's tasks have ended."""
        tasks = [*self._opening.values()] + ([self._growth_watch] if self._growth_watch is not None else [])
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for partition in self.partitions:
            await partition.wait_ended()

    def _create_partitions(self, first: int, count: int) -> list[PartitionProducer]:
        """Return producers of the partitions from `first` on, of `count` partitions."""
        options = self.options
        pending_messages, pending_bytes = options.max_pending_messages, options.max_pending_bytes
        if self._is_partitioned:
            share = max(1, options.max_pending_messages_across_partitions // count)
            pending_messages = min(pending_messages, share)
        delay_s = options.batching_max_publish_delay_ms / 1000
        if options.send_timeout_millis:  # the broker has the other half of the time to answer
            delay_s = min(delay_s, options.send_timeout_millis / 2000)
        limits = SendLimits(
            pending_messages=pending_messages,
            pending_bytes=max(pending_bytes // count, min(pending_bytes, _LEAST_PENDING_BYTES)),
            batch_messages=options.batching_max_messages if options.batching_enabled else 1,
            batch_bytes=options.batching_max_allowed_size_in_bytes,
            batch_delay_s=delay_s,
            max_message_bytes=MAX_MESSAGE_BYTES,
            batch_by_key=options.batching_enabled and options.batching_type is BatchingType.KeyBased,
        )
        if first > 0:
            options = options_of_other_partitions(options)
        names = [self._name.partition(index) if self._is_partitioned else self._name for index in range(first, count)]
        report = self._growth.report
        made = [PartitionProducer(self.client, name, options, limits, report, self._lose) for name in names]
        for partition in made:
            partition.initial_subscription = self._initial_subscription
        return made

    async def _open_new_partitions(self) -> int | None:
        try:
            count = await self.client.lookup.count_partitions(self.topic, create=False)
            if count > len(self.partitions):
                new = self._create_partitions(len(self.partitions), count)
                if self._is_exclusive:
                    await open_with_epoch(new, self.partitions[0])
                elif not self.options.lazy_start_partitioned_producers:
                    await _open_all(new)
                self.partitions = self.partitions + new
                if self.on_partitions_changed is not None:
                    self.on_partitions_changed(count)
        except MagnetarException as error:
            log.warning("new partitions of %s could not be opened yet: %s", self.topic, error)
            return None
        return count

    def _stop_growth_watch(self) -> None:
        if self._growth_watch is not None:
            self._growth_watch.cancel()


async def _open_all(partitions: list[PartitionProducer]) -> None:
    """Open partitions at the same time. If it raises an error, none of them is open."""
    try:
        async with OrderedTaskGroup() as tasks:
            for partition in partitions:
                tasks.create_task(partition.open())
    except BaseExceptionGroup as group:
        first = group.exceptions[0]
        _end_all(partitions, first if isinstance(first, MagnetarException) else MagnetarException(str(first)))
        raise first from None
    except BaseException:  # cancelled: the producer is closed
        _end_all(partitions, AlreadyClosed("the producer is closed"))
        raise


def _end_all(partitions: list[PartitionProducer], error: MagnetarException) -> None:
    for partition in partitions:
        partition.end(error)


async def _wait_for_all(tasks: list[asyncio.Task[None]]) -> None:
    """Return when all tasks have ended, and raise the first error."""
    if not tasks:
        return
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
    errors = [task.exception() for task in tasks]  # retrieve all of them, because asyncio logs the others
    for error in errors:
        if error is not None:
            raise error
