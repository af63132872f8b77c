"""The partitions of a query's topics, and waiting for topics that do not exist yet.

**While a stream runs**, partitions are added to its topics, and topics are created that match its pattern. They are
listed before each micro-batch, but at most once a second, and after a listing that took t not again for
`_PAUSE_FACTOR` x t.

**When a query starts** it needs each topic that it names, or one that matches its pattern. With the option
`waitForTopic` it lists them every `_LIST_EVERY_S` until all exist. When the time is over, the error names the missing
topic. A stream with a pattern needs none: it waits only if the option is given, and then starts without any topic. A
namespace that does not exist is waited for like a topic. It is always needed, since publishing never creates a
namespace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar import MessageId
from magnetar.exceptions import NotFound, TopicNotFound
from magnetar_spark.broker_requests import gather_bounded
from magnetar_spark.errors import NoSuchTopic
from magnetar_spark.options.topic_selection import TopicSelection
from magnetar_wire.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["TopicDiscovery", "TopicPartition", "wait_for_topics"]

_MIN_PAUSE_S: Final = 1.0
_PAUSE_FACTOR: Final = 10.0
_LIST_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class TopicPartition:
    # The values of the columns `topic` and `partition`; the partition is -1 if the topic is not partitioned.
    topic: str
    partition: int
    # The name of the partition, or of the topic if it is not partitioned.
    log: str

    @classmethod
    def parse(cls, log: str) -> TopicPartition:
        name = TopicName.parse(log)
        return cls(str(name.base), name.partition_index, str(name))


class TopicDiscovery:
    def __init__(self, admin: AsyncAdmin, selection: TopicSelection) -> None:
        self._admin = admin
        self._selection = selection
        self._found: list[TopicPartition] = []
        self._next_listing_at = 0.0

    async def list_partitions(self, *, now: bool = False) -> Sequence[TopicPartition]:
        """Return the partitions in the order of their names. Without `now` the list may be some seconds old."""
        started = time.monotonic()
        if now or started >= self._next_listing_at:
            partitions = await self._list()
            self._found = sorted(partitions, key=lambda one: (one.topic, one.partition))
            ended = time.monotonic()
            self._next_listing_at = ended + max(_MIN_PAUSE_S, _PAUSE_FACTOR * (ended - started))
        return self._found

    async def _list(self) -> list[TopicPartition]:
        selection = self._selection
        if selection.namespace is None:
            found = await gather_bounded(self._list_topic, selection.names)
            return [partition for partitions in found for partition in partitions]
        namespace = str(selection.namespace)
        names, partitioned_names = await asyncio.gather(
            self._admin.topics.list(namespace), self._admin.topics.list_partitioned(namespace)
        )
        partitioned = dict.fromkeys(TopicName.parse(name) for name in partitioned_names)
        topics = dict.fromkeys(TopicName.parse(name) for name in names)
        found = await gather_bounded(self._list_topic, [topic for topic in partitioned if selection.matches(topic)])
        partitions = [partition for partitions in found for partition in partitions]
        others = [topic for topic in topics if topic.base not in partitioned and selection.matches(topic)]
        return partitions + [TopicPartition.parse(str(topic)) for topic in others]

    async def _list_topic(self, topic: TopicName) -> list[TopicPartition]:
        if topic.is_partition:
            return [TopicPartition.parse(str(topic))]
        try:
            count = (await self._admin.topics.get_partitioned(str(topic))).partitions
        except (NotFound, TopicNotFound):
            # A topic that is not partitioned, or does not exist: then the first request to it fails.
            return [TopicPartition(str(topic), -1, str(topic))]
        return [TopicPartition(str(topic), index, str(topic.partition(index))) for index in range(count)]


async def wait_for_topics(
    admin: AsyncAdmin,
    discovery: TopicDiscovery,
    selection: TopicSelection,
    wait_s: float,
    *,
    needed: bool = True,
    before_listing: Callable[[], Awaitable[None]] | None = None,
) -> Sequence[TopicPartition]:
    """Return the partitions of all topics. Raises NoSuchTopic if a `needed` topic, or the namespace of a pattern, does
    not exist in time. `before_listing` is awaited before each listing."""
    deadline = time.monotonic() + wait_s
    waited = f", and none was created within the {wait_s:g} s of waitForTopic" if wait_s else ""
    while True:
        if before_listing is not None:
            await before_listing()
        partitions: Sequence[TopicPartition] | None
        try:
            partitions = await discovery.list_partitions(now=True)
        except NotFound:
            partitions = None
        missing = None if partitions is None else await _find_missing(admin, selection, partitions)
        if partitions is not None and (missing is None or not (needed or wait_s)):
            return partitions
        left = deadline - time.monotonic()
        if left <= 0:
            break
        await asyncio.sleep(min(_LIST_EVERY_S, left))
    if partitions is None:
        raise NoSuchTopic(
            f"there is no namespace {selection.namespace}{waited}: create it first, correct the pattern, or "
            "let the query wait for it with the option waitForTopic, such as 5m"
        )
    if not needed:
        return partitions
    raise NoSuchTopic(
        f"there is no topic {missing}{waited}: create it or publish to it first, correct the name, or let "
        "the query wait for it with the option waitForTopic, such as 5m"
    )


async def _find_missing(
    admin: AsyncAdmin, selection: TopicSelection, partitions: Sequence[TopicPartition]
) -> str | None:
    """Return the first topic that does not exist, or None. Partitions of a partitioned topic exist by its metadata."""
    if selection.namespace is not None:
        return None if partitions else f"that matches {selection}"
    named = [one for one in partitions if one.partition < 0 or TopicName.parse(one.log) in selection.names]
    exist = await gather_bounded(lambda one: _check_exists(admin, one.log), named)
    return next((one.log for one, exists in zip(named, exist, strict=True) if not exists), None)


async def _check_exists(admin: AsyncAdmin, log: str) -> bool:
    try:
        await admin.reading.find_position(log, MessageId.latest)
    except (NotFound, TopicNotFound):
        return False
    return True
