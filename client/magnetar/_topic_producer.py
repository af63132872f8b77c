"""A producer on a topic: on each of its partitions one `PartitionProducer`, and what decides between them.

All of them are opened at first, or none; with `lazy_start_partitioned_producers` one, and each other one when something
is to be sent to it. The first one's name is the name of all. Whether the topic has more partitions by now is asked from
time to time; new ones are opened before anything is routed to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from magnetar._client_core import ClientCore
from magnetar._options import ProducerOptions, parse_topic_name
from magnetar._partition_producer import PartitionProducer
from magnetar._routing import OutgoingMessage, Router
from magnetar._send_queue import Bounds
from magnetar.exceptions import AlreadyClosed, MagnetarException
from magnetar_wire.limits import MAX_MESSAGE_BYTES
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicProducer", "open_producer"]

log = logging.getLogger(__name__)
_LEAST_PENDING_BYTES = 1024 * 1024


async def open_producer(client: ClientCore, topic: str, options: ProducerOptions) -> TopicProducer:
    """Return a producer, opened, which the client closes when it is closed itself."""
    client.check_open()
    producer = TopicProducer(client, parse_topic_name(topic), options)
    await producer.open()
    client.add_member(producer)
    return producer


class TopicProducer:
    def __init__(self, client: ClientCore, topic: TopicName, options: ProducerOptions) -> None:
        self.topic = str(topic)
        self.options = options
        self._name = topic
        self.client = client
        # Replaced as a whole when the topic grows: other threads look at it.
        self.parts: list[PartitionProducer] = []
        self._partitioned = False
        self._router: Router | None = None
        # By partition: one that is being opened on demand.
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def producer_name(self) -> str:
        return self.options.producer_name or self.parts[0].producer_name

    @property
    def last_sequence_id(self) -> int:
        return max(part.last_sequence_id for part in self.parts)

    @property
    def routes_each(self) -> bool:
        """The application says of each message where it goes."""
        return self._partitioned and self._router is not None and self._router.custom

    @property
    def connected(self) -> bool:
        return all(part.connected for part in self.parts if part.begun)

    async def open(self) -> None:
        """Raises what is in the way; then nothing is open."""
        count = await self.client.lookup.count_partitions(self.topic)
        self._partitioned = count > 0
        self._router = Router(
            self.options.message_routing_mode,
            self.options.hashing_scheme,
            self.options.message_router,
            max(1, count),
            self.client.randomness,
        )
        parts = self.parts = self._make(0, max(1, count), max(1, count))
        first = parts[self._router.first]
        try:
            await first.open()
            self.options = self.options.model_copy(update={"producer_name": first.producer_name})
            for part in parts:
                part.producer_name = first.producer_name
            if not self.options.lazy_start_partitioned_producers:
                await _open_all([part for part in parts if part is not first])
        except BaseException as error:
            reason = error if isinstance(error, MagnetarException) else MagnetarException("it was not opened")
            self.end(reason)
            raise
        interval_s = self.options.auto_update_partitions_interval_seconds
        if self._partitioned and interval_s:
            self._watching = asyncio.get_running_loop().create_task(self._watch(interval_s))

    def route(
        self,
        content: bytes | None,
        properties: Mapping[str, str] | None,
        key: str | bytes | None,
        ordering_key: bytes | None,
        event_timestamp: int,
    ) -> PartitionProducer:
        """Where the message goes; from any thread. It may not have `begun`: then it is to be opened first."""
        parts, router = self.parts, self._router
        assert router is not None
        if not self._partitioned:
            return parts[0]
        if router.custom:
            message = OutgoingMessage(content, properties, key, ordering_key, event_timestamp)
            return parts[router.ask(message, len(parts))]
        if key is not None:
            return parts[router.of_key(key, len(parts))]
        return parts[router.next(parts)]

    async def begin(self, part: PartitionProducer) -> None:
        """Opens a partition that was left for later. Raises what ended the producer."""
        part.queue.check_open()
        index = self.parts.index(part)
        if not part.begun and index not in self._opening:
            task = self._opening[index] = asyncio.get_running_loop().create_task(part.open())
            task.add_done_callback(lambda _: self._opening.pop(index))
        if index in self._opening:
            await asyncio.shield(self._opening[index])

    async def flush(self, *, in_callback: bool = False) -> None:
        """Raises the first error that anything sent before has met."""
        flushing = [
            asyncio.get_running_loop().create_task(part.flush(in_callback=in_callback))
            for part in self.parts
            if part.begun
        ]
        await _all(flushing)

    async def close(self) -> None:
        self._stop_watching()
        await _all([asyncio.get_running_loop().create_task(part.close()) for part in self.parts if part.begun])
        self.end(AlreadyClosed(f"the producer on {self.topic} is closed"))

    def end(self, error: MagnetarException) -> None:
        self._stop_watching()
        for part in self.parts:
            part.end(error)

    def forked(self, error: MagnetarException) -> None:
        """In a child: it is closed, and touches nothing of the parent's."""
        self._watching, self._opening = None, {}
        for part in self.parts:
            part.forked(error)

    async def wait_ended(self) -> None:
        tasks = [*self._opening.values()] + ([self._watching] if self._watching is not None else [])
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for part in self.parts:
            await part.wait_ended()

    def _make(self, first: int, end: int, partitions: int) -> list[PartitionProducer]:
        options = self.options
        each_messages = max(1, options.max_pending_messages_across_partitions // partitions)
        bounds = Bounds(
            min(options.max_pending_messages, each_messages) if self._partitioned else options.max_pending_messages,
            max(options.max_pending_bytes // partitions, min(options.max_pending_bytes, _LEAST_PENDING_BYTES)),
            options.batching_max_messages if options.batching_enabled else 1,
            options.batching_max_allowed_size_in_bytes,
            options.batching_max_publish_delay_ms / 1000,
            MAX_MESSAGE_BYTES,
        )
        names = [self._name.partition(index) if self._partitioned else self._name for index in range(first, end)]
        return [PartitionProducer(self.client, name, options, bounds) for name in names]

    async def _watch(self, interval_s: float) -> None:
        while True:
            await self.client.clock.sleep(interval_s)
            try:
                count = await self.client.lookup.count_partitions(self.topic, create=False)
                if count > len(self.parts):
                    new = self._make(len(self.parts), count, count)
                    if not self.options.lazy_start_partitioned_producers:
                        await _open_all(new)
                    self.parts = self.parts + new
            except MagnetarException as error:
                log.warning("whether %s has more partitions is not known: %s", self.topic, error)

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()


async def _open_all(parts: list[PartitionProducer]) -> None:
    """Raises the first error; then none of them is open."""
    try:
        async with OrderedTaskGroup() as tasks:
            for part in parts:
                tasks.create_task(part.open())
    except BaseExceptionGroup as group:
        first = group.exceptions[0]
        for part in parts:
            part.end(first if isinstance(first, MagnetarException) else MagnetarException(str(first)))
        raise first from None


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    """Returns when all have ended, and raises the first error."""
    if not tasks:
        return
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
    errors = [task.exception() for task in tasks]  # all of them are looked at, or asyncio would complain
    for error in errors:
        if error is not None:
            raise error
