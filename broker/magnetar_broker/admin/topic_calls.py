"""What an administrator asks of topics, with and without partitions: each is done by the broker that serves it
(topics_here.py), a partitioned topic's at those of its partitions, some at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.names import topic_named
from magnetar_broker.admin.owner_calls import OwnerCalls
from magnetar_broker.admin.some_at_a_time import on_each_part, some_at_a_time
from magnetar_broker.admin.topic_stats import sum_of
from magnetar_broker.core.policies import check_known
from magnetar_broker.core.system_topics import is_system_topic
from magnetar_broker.errors import BrokerError
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode, StartAt
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["TopicCalls"]

# Of a properties' map, keys and values together.
_MAX_PROPERTIES_BYTES = 16_384
# How often a growth looks for subscriptions that were created or deleted meanwhile.
_MAX_COPY_ROUNDS = 100


class TopicCalls:
    def __init__(self, catalog: Catalog, owners: OwnerCalls) -> None:
        self._catalog = catalog
        self._owners = owners

    async def create_topic(self, request: pb.TopicRequest) -> pb.Done:
        name = _users(request.topic)
        await self._catalog.check_topic(name)
        return await self._owners.of_topic(name, "create_topic", request, pb.Done)

    async def delete_topic(self, request: pb.DeleteRequest) -> pb.Done:
        name = topic_named(request.name)
        if not name.is_partition and await self._catalog.partitioned.find(name, fresh=True) is not None:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED, f"{name} is a partitioned topic: delete it as that, with all its partitions"
            )
        if await self._catalog.topic_state(name) is None:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {name}")
        return await self._owners.of_topic(name, "delete_topic", request, pb.Done)

    async def truncate_topic(self, request: pb.TopicRequest) -> pb.Done:
        await self._each(await self.names(topic_named(request.topic)), "truncate_topic")
        return pb.Done()

    async def unload_topic(self, request: pb.TopicRequest) -> pb.Done:
        await self._each(await self.names(topic_named(request.topic)), "unload_topic", harmless=True)
        return pb.Done()

    async def topic_stats(self, request: pb.TopicRequest) -> pb.TopicStatsAnswer:
        name = topic_named(request.topic)
        parts = await self.names(name)
        if parts == [name]:
            return await self._stats(name)

        async def summed_up(part: TopicName) -> pb.TopicStats:
            stats = (await self._stats(part)).stats
            # Nobody is shown these, and there may be very many of them.
            stats.ClearField("producers")
            for one in stats.subscriptions:
                one.ClearField("consumers")
            return stats

        return pb.TopicStatsAnswer(stats=sum_of(str(name), await some_at_a_time(parts, summed_up)))

    async def internal_stats(self, request: pb.TopicRequest) -> pb.InternalStatsAnswer:
        name = topic_named(request.topic)
        if await self.names(name) != [name]:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} is a partitioned topic: ask {name.partition(0)} …")
        return await self._owners.of_topic(name, "internal_stats", request, pb.InternalStatsAnswer, harmless=True)

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
            parts = [name.partition(index) for index in range(node.node.partitions)]
            await self._each(parts, "check_unused", harmless=True)
        await self._delete_partitioned(name, force=request.force)
        return pb.Done()

    async def delete_all(self, namespace: NamespaceName) -> None:
        """All that is in it, by force."""
        for text in await self._catalog.partitioned_topics(namespace, include_system=True):
            await _unless_gone(self._delete_partitioned(TopicName.parse(text), force=True))
        topics = [TopicName.parse(text) for text in await self._catalog.topics(namespace, include_system=True)]
        await some_at_a_time(topics, lambda topic: self._delete_for_good(topic, force=True))

    # ── finding ──

    async def names(self, name: TopicName) -> list[TopicName]:
        """The topic, or its partitions. Raises TOPIC_NOT_FOUND."""
        partitions = await self._catalog.partitions(name, create=False)
        return [name.partition(index) for index in range(partitions)] if partitions else [name]

    async def partitions_with_announced(self, name: TopicName) -> list[TopicName]:
        """The partitions of a partitioned topic, with those that a growth has announced and clients do not know yet;
        as new as the call."""
        node = await self._catalog.partitioned.get(name)
        return [name.partition(index) for index in range(max(node.partitions, node.growing_to))]

    async def durable_subscriptions(self, name: TopicName) -> Sequence[pb.DurableSubscription]:
        request = pb.TopicRequest(topic=str(name))
        answer = await self._owners.of_topic(
            name, "durable_subscriptions", request, pb.DurableSubscriptionsAnswer, harmless=True
        )
        return answer.subscriptions

    async def _stats(self, name: TopicName) -> pb.TopicStatsAnswer:
        request = pb.TopicRequest(topic=str(name))
        return await self._owners.of_topic(name, "topic_stats", request, pb.TopicStatsAnswer, harmless=True)

    async def _each(self, parts: Sequence[TopicName], call: str, *, harmless: bool = False) -> None:
        async def ask(part: TopicName) -> None:
            await self._owners.of_topic(part, call, pb.TopicRequest(topic=str(part)), pb.Done, harmless=harmless)

        await (some_at_a_time if harmless else on_each_part)(parts, ask)

    async def _prepare(self, name: TopicName, new: Sequence[TopicName]) -> None:
        """Give new partitions the subscriptions that the first one has, from the beginning.

        Subscriptions that are created or deleted meanwhile are copied, too: at the end the first partition has just
        those that the new ones were given. See subscription_calls.py for its part of this.
        """
        if not new:
            return
        await some_at_a_time(new, self.durable_subscriptions)  # it makes the partition
        given: dict[str, pb.DurableSubscription] = {}
        for _ in range(_MAX_COPY_ROUNDS):
            found = {one.subscription: one for one in await self.durable_subscriptions(name.partition(0))}
            created = [one for one in found.values() if one.subscription not in given]
            deleted = [subscription for subscription in given if subscription not in found]
            if not created and not deleted:
                return
            await some_at_a_time(new, partial(self._copy_subscriptions, created, deleted))
            given = found
        raise BrokerError(
            ErrorCode.UNKNOWN_ERROR,
            f"subscriptions of {name} were created or deleted {_MAX_COPY_ROUNDS} times while it grew, and clients are "
            "not told of its new partitions: grow it again",
        )

    async def _copy_subscriptions(
        self, created: Sequence[pb.DurableSubscription], deleted: Sequence[str], partition: TopicName
    ) -> None:
        for one in created:
            request = pb.SubscriptionRequest(
                topic=str(partition),
                subscription=one.subscription,
                start=StartAt(earliest=True),
                properties=one.properties,
            )
            with _passed_over(ErrorCode.ALREADY_EXISTS):
                await self._owners.of_topic(partition, "create_subscription", request, pb.Done, harmless=True)
        for subscription in deleted:
            deletion = pb.DeleteSubscriptionRequest(topic=str(partition), subscription=subscription)
            with _passed_over(ErrorCode.SUBSCRIPTION_NOT_FOUND):
                await self._owners.of_topic(partition, "delete_subscription", deletion, pb.Done, harmless=True)

    async def _delete_partitioned(self, name: TopicName, *, force: bool) -> None:
        async def delete_partitions(partitions: Sequence[TopicName]) -> None:
            await some_at_a_time(partitions, lambda partition: self._delete_for_good(partition, force=force))

        await self._catalog.partitioned.delete(name, delete_partitions)

    async def _delete_for_good(self, name: TopicName, *, force: bool) -> None:
        """Of something that is marked: no topic is made under that name meanwhile, so it may be done twice."""
        if await self._catalog.topic_state(name) is not None:
            request = pb.DeleteRequest(name=str(name), force=force)
            await _unless_gone(self._owners.of_topic(name, "delete_topic", request, pb.Done, harmless=True))


def _users(text: str) -> TopicName:
    """The name of a topic that a user may make."""
    name = topic_named(text)
    if is_system_topic(name):
        raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} is a topic of the system, which makes it itself")
    return name


@contextmanager
def _passed_over(code: ErrorCode) -> Iterator[None]:
    try:
        yield
    except BrokerError as error:
        if error.code != code:
            raise


async def _unless_gone(deletion: Awaitable[object]) -> None:
    try:
        await deletion
    except BrokerError as error:
        if error.code not in (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_FOUND):
            raise
