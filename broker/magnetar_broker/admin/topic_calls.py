"""What an administrator asks of topics, with and without partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.topic_stats import internal_stats, sum_of, topic_stats
from magnetar_broker.core.policies import check_known
from magnetar_broker.core.system_topics import is_system_topic
from magnetar_broker.errors import BrokerError
from magnetar_broker.topic.topic import Topic
from magnetar_broker.topic.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode, StartAt
from magnetar_protos.managed_ledger_pb2 import TopicState
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["TopicCalls", "topic_named"]

# Of a properties' map, keys and values together.
_MAX_PROPERTIES_BYTES = 16_384


def topic_named(text: str) -> TopicName:
    try:
        return TopicName.parse(text)
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_NAME, str(error)) from None


class TopicCalls:
    def __init__(self, topics: Topics, catalog: Catalog) -> None:
        self._topics = topics
        self._catalog = catalog

    async def create_topic(self, request: pb.TopicRequest) -> pb.Done:
        name = _users(request.topic)
        await self._catalog.check_topic(name)
        if await self._catalog.topic_state(name) == TopicState.LIVE:
            raise BrokerError(ErrorCode.ALREADY_EXISTS, f"there is a topic {name} already")
        await self._topics.get(name, create=True, asked=True)
        return pb.Done()

    async def delete_topic(self, request: pb.DeleteRequest) -> pb.Done:
        name = topic_named(request.name)
        if not name.is_partition and await self._catalog.partitioned.find(name, fresh=True) is not None:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED, f"{name} is a partitioned topic: delete it as that, with all its partitions"
            )
        if await self._catalog.topic_state(name) is None:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {name}")
        await self._topics.delete(name, force=request.force)
        return pb.Done()

    async def truncate_topic(self, request: pb.TopicRequest) -> pb.Done:
        for topic in await self.parts(topic_named(request.topic)):
            for subscription in topic.subscriptions.stats():
                if subscription.durable:
                    await topic.subscriptions.skip_all(subscription.name)
            await topic.log.truncate()
            topic.cursors.log_was_trimmed()
        return pb.Done()

    async def unload_topic(self, request: pb.TopicRequest) -> pb.Done:
        for name in await self.names(topic_named(request.topic)):
            await self._topics.unload(name)
        return pb.Done()

    async def topic_stats(self, request: pb.TopicRequest) -> pb.TopicStatsAnswer:
        name = topic_named(request.topic)
        stats = [await topic_stats(topic) for topic in await self.parts(name)]
        if name.is_partition or not await self._partitions(name):
            return pb.TopicStatsAnswer(stats=stats[0])
        return pb.TopicStatsAnswer(stats=sum_of(str(name), stats))

    async def internal_stats(self, request: pb.TopicRequest) -> pb.InternalStatsAnswer:
        name = topic_named(request.topic)
        if await self._partitions(name):
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} is a partitioned topic: ask {name.partition(0)} …")
        return pb.InternalStatsAnswer(stats=internal_stats(await self.one(name)))

    # ── partitioned topics ──

    async def create_partitioned(self, request: pb.PartitionsRequest) -> pb.Done:
        check_known(request, "create_partitioned")
        name = _users(request.topic)
        size = sum(len(key.encode()) + len(value.encode()) for key, value in request.properties.items())
        if size > _MAX_PROPERTIES_BYTES:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"properties of {size:,} bytes are above the limit of {_MAX_PROPERTIES_BYTES:,}",
            )
        await self._catalog.check_topic(name.base)
        await self._catalog.partitioned.create(name, request.partitions, request.properties)
        return pb.Done()

    async def partitioned_topic(self, request: pb.TopicRequest) -> pb.PartitionedTopicAnswer:
        node = await self._catalog.partitioned.get(topic_named(request.topic))
        return pb.PartitionedTopicAnswer(partitions=node.partitions, properties=node.properties)

    async def grow_partitioned(self, request: pb.PartitionsRequest) -> pb.Done:
        name = topic_named(request.topic)
        await self._catalog.partitioned.grow(name, request.partitions, lambda new: self._prepare(name, new))
        return pb.Done()

    async def delete_partitioned(self, request: pb.DeleteRequest) -> pb.Done:
        name = topic_named(request.name)
        node = (await self._catalog.partitioned.find(name, fresh=True)) if not name.is_partition else None
        if node is not None and not request.force:
            for index in range(node.node.partitions):
                topic = self._topics.get_loaded(name.partition(index))
                if topic is not None and topic.in_use:
                    raise BrokerError(
                        ErrorCode.NOT_ALLOWED,
                        f"{topic.name} has producers or consumers: close them, or delete {name} by force",
                    )
        await self._delete_partitioned(name, force=request.force)
        return pb.Done()

    async def delete_all(self, namespace: NamespaceName) -> None:
        """All that is in it, by force."""
        for text in await self._catalog.partitioned_topics(namespace, include_system=True):
            await _unless_gone(self._delete_partitioned(TopicName.parse(text), force=True))
        for text in await self._catalog.topics(namespace, include_system=True):
            await _unless_gone(self._topics.delete(TopicName.parse(text), force=True))

    # ── finding ──

    async def names(self, name: TopicName) -> list[TopicName]:
        """The topic, or its partitions. Raises TOPIC_NOT_FOUND."""
        partitions = await self._partitions(name)
        return [name.partition(index) for index in range(partitions)] if partitions else [name]

    async def parts(self, name: TopicName) -> list[Topic]:
        """The topic, or its partitions, loaded."""
        partitions = await self._partitions(name)
        if not partitions:
            return [await self.one(name)]
        # A partition that nobody has used yet is made.
        return [await self._topics.get(name.partition(index), create=True) for index in range(partitions)]

    async def one(self, name: TopicName) -> Topic:
        return await self._topics.get(name, create=name.is_partition)

    async def _partitions(self, name: TopicName) -> int:
        return await self._catalog.partitions(name, create=False)

    async def _prepare(self, name: TopicName, new: Sequence[TopicName]) -> None:
        """Gives new partitions the subscriptions that the first one has, from the beginning."""
        first = await self._topics.get(name.partition(0), create=True)
        subscriptions = [(one.name, one.properties) for one in first.subscriptions.stats() if one.durable]
        for partition in new:
            topic = await self._topics.get(partition, create=True)
            for subscription, properties in subscriptions:
                try:
                    await topic.subscriptions.create(subscription, StartAt(earliest=True), properties)
                except BrokerError as error:
                    if error.code != ErrorCode.ALREADY_EXISTS:
                        raise

    async def _delete_partitioned(self, name: TopicName, *, force: bool) -> None:
        async def delete_partition(partition: TopicName) -> None:
            await _unless_gone(self._topics.delete(partition, force=force))

        await self._catalog.partitioned.delete(name, delete_partition)


def _users(text: str) -> TopicName:
    """The name of a topic that a user may make."""
    name = topic_named(text)
    if is_system_topic(name):
        raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} is a topic of the system, which makes it itself")
    return name


async def _unless_gone(deletion: Awaitable[None]) -> None:
    try:
        await deletion
    except BrokerError as error:
        if error.code not in (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_FOUND):
            raise
