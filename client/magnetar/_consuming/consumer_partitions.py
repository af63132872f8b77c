"""The partitions of a consumer's topics, and of a reader's: a `PartitionConsumer` for each.

**All or none.** The first partition is opened alone, then the others, many at a time. If any can't be opened, the
consumer is not created. Two consumers that both want an exclusive subscription of a partitioned topic meet at the first
partition, so one of them gets all. After that each partition reopens alone.

**Topics of a pattern** are added and dropped by `pattern_topics.py`.

**New partitions** (`_connections/growth_watch.py`) are read from the earliest message, since everything in them was
published after the consumer was created. Those that can't be opened are retried, and the others are read in the
meantime.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from magnetar._consuming.partition_consumer import PartitionConsumer
from magnetar._consuming.reconnecting_consumer import ConsumerContext
from magnetar._prefetching.read_position import Start
from magnetar.exceptions import InvalidConfiguration, MagnetarException
from magnetar_protos.broker_pb2 import StartAt
from magnetar_wire.topic_name import TopicName

__all__ = ["CONCURRENT_OPENINGS", "ConsumerPartitions"]

log = logging.getLogger("magnetar")

# How many partitions and topics of a consumer are opened at a time.
CONCURRENT_OPENINGS: Final = 200


class ConsumerPartitions:
    def __init__(
        self, names: Sequence[TopicName], context: ConsumerContext, start: Start, is_open: Callable[[], bool]
    ) -> None:
        """`is_open`: whether the consumer is neither closed nor failed."""
        self.names = list(names)
        self.all: list[PartitionConsumer] = []
        # Replaced by a copy when it changes, since other threads read it.
        self.by_topic: dict[str, PartitionConsumer] = {}
        # Those of a pattern's topics that were dropped, while messages of them are in use.
        self.dropped: weakref.WeakSet[PartitionConsumer] = weakref.WeakSet()
        # Dropped ones whose tasks may still run.
        self._ending: list[PartitionConsumer] = []
        # Held while new partitions are looked for and opened, and while none may be.
        self.growing = asyncio.Lock()
        self._client = context.client
        self._context = context
        self._options = context.options
        self._start = start
        self._is_open = is_open
        # The number of partitions of each topic, as far as is known; 0: it has none.
        self._counts: dict[TopicName, int] = {}

    @property
    def may_grow(self) -> bool:
        return any(self._counts.values())

    async def open(self) -> None:
        """Open all partitions. Raises the error of the first that can't be opened."""
        for name in self.names:
            self._counts[name] = 0 if name.is_partition else await self._count_partitions(name)
        # A list may have a topic and its partition.
        names = list(dict.fromkeys(part for name in self.names for part in _name_partitions(name, self._counts[name])))
        reads_only = not self._context.durable
        for partition in self.add(names, self._start):
            if reads_only and self._options.start_message_id_inclusive:
                await partition.position.start_with_last_message()
        self._check_partitions()
        for partition in self.all[:1]:
            await partition.open()
        await self._open_all(self.all[1:])
        if reads_only:
            for partition in self.all:
                await partition.position.find_behind()

    def _check_partitions(self) -> None:
        if len(self.all) <= 1:
            return
        if self._start.at.WhichOneof("at") == "message_id":
            raise InvalidConfiguration(
                f"{self.names[0]} has {len(self.all)} partitions, and a message id belongs to one of them: read "
                "that partition, or start at earliest, latest or a time"
            )
        if self._options.receiver_queue_size == 0:
            letters = self._context.letters
            retry = None if letters is None else letters.rules.retry_letter_topic
            raise InvalidConfiguration(
                f"receiver_queue_size = 0 needs a single topic without partitions, not {len(self.all)} topics "
                "or partitions"
                + ("" if retry is None else f", one of which is the retry letter topic {retry} (enable_retry)")
                + ": use 1 or more"
            )

    async def _count_partitions(self, name: TopicName, *, create: bool = True) -> int:
        return await self._client.lookup.count_partitions(str(name), create)

    def add(self, names: Sequence[TopicName], start: Start, *, of_pattern: bool = False) -> list[PartitionConsumer]:
        """Add partitions, or topics without partitions, that are not open yet."""
        added = [PartitionConsumer(name, self._context, start) for name in names]
        for partition in added:
            partition.is_of_pattern = of_pattern
        self.all += added
        self.by_topic = self.by_topic | {partition.topic: partition for partition in added}
        self._share_queue()
        return added

    def drop(self, partitions: Sequence[PartitionConsumer], error: MagnetarException) -> None:
        """End some of a pattern's topics. Messages of them may still be acknowledged, without effect."""
        self._forget(partitions)
        self.dropped.update(partitions)
        self._ending = [one for one in self._ending if one.reopening is not None and not one.reopening.done()]
        self._ending += partitions
        for partition in partitions:
            partition.end(error)
            self._context.queue.clear(partition.partition_queue)

    async def wait_ended(self) -> None:
        """Return when the tasks of all, which have ended, and of those that were dropped have ended."""
        for partition in [*self.all, *self._ending]:
            await partition.wait_ended()

    def _forget(self, partitions: Sequence[PartitionConsumer]) -> None:
        removed = set(partitions)
        self.all[:] = [partition for partition in self.all if partition not in removed]
        self.by_topic = {topic: partition for topic, partition in self.by_topic.items() if partition not in removed}
        self._share_queue()

    def _share_queue(self) -> None:
        """Divide the receiver queue among the partitions."""
        options, count = self._options, max(1, len(self.all))
        size = options.receiver_queue_size
        if count > 1:
            size = min(size, max(1, options.max_total_receiver_queue_size_across_partitions // count))
        for partition in self.all:
            partition.permits.set_limits(size, max(1, options.receiver_queue_bytes // count))

    async def _open_all(self, partitions: Sequence[PartitionConsumer]) -> None:
        """Open them, many at a time. If one can't be opened, cancel the others."""
        slots = asyncio.Semaphore(CONCURRENT_OPENINGS)

        async def open_one(partition: PartitionConsumer) -> None:
            async with slots:
                await partition.open()

        tasks = [asyncio.get_running_loop().create_task(open_one(partition)) for partition in partitions]
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

    def describe_topics(self) -> str:
        """Name every topic, and its partitions."""
        return ", ".join(
            f"{name} (partitions 0 to {count - 1})" if (count := self._counts.get(name, 0)) else str(name)
            for name in self.names
        )

    async def close(self) -> None:
        """Close all at their brokers."""
        tasks = [asyncio.get_running_loop().create_task(partition.close()) for partition in self.all]
        if tasks:
            try:
                await asyncio.wait(tasks)
            finally:
                for task in tasks:
                    task.cancel()

    # New partitions.

    async def open_new(self) -> int | None:
        """Open new partitions. Return the highest number of partitions of a topic; None: not all could be opened."""
        if await self.find_new() is not None:
            return None
        return max(self._counts.values(), default=0)

    async def find_new(self) -> MagnetarException | None:
        """Open all that can be opened. Return the first error."""
        first: MagnetarException | None = None
        async with self.growing:
            for name in [name for name, count in self._counts.items() if count and self._is_open()]:
                try:
                    await self._open_new_of(name, await self._count_partitions(name, create=False))
                except MagnetarException as error:
                    log.info("new partitions of %s could not be opened: %s", name, error)
                    first = first or error
        return first

    async def _open_new_of(self, name: TopicName, now: int) -> None:
        """Open all that can be opened. Raises the error of the first that can't be."""
        new = [part for part in _name_partitions(name, now) if str(part) not in self.by_topic]
        self._counts[name] = max(now, self._counts[name])
        if not new:
            return
        added = self.add(new, Start(StartAt(earliest=True)))
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
        if self._context.on_partitions_changed is not None:
            self._context.on_partitions_changed(str(name), now)

    async def _remove_partitions(self, partitions: Sequence[PartitionConsumer]) -> None:
        """Remove partitions that were not opened."""
        self._forget(partitions)
        await asyncio.gather(*(partition.close() for partition in partitions))


def _name_partitions(name: TopicName, count: int) -> list[TopicName]:
    return [name.partition(index) for index in range(count)] if count else [name]
