"""Admin calls on partitioned topics as a whole. Rules of their nodes are in catalog/partitioned_topics.py.

A topic that grows gives its new partitions the subscriptions of its first one. topic_router.py explains how this and a
change of a subscription at the same time leave all partitions alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from magnetar_broker.admin.deletions import Deletions
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.names import cut_page, parse_namespace_name, parse_topic_name
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.admin.subscription_calls import read_subscriptions
from magnetar_broker.admin.topic_calls import check_not_system_topic
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode, StartAt
from magnetar_wire.topic_name import TopicName

__all__ = ["PartitionedTopicCalls"]

# The maximum size of a topic's properties, keys and values together.
_MAX_PROPERTIES_BYTES: Final = 16_384
# Copies are repeated as long as subscriptions are created or deleted at the same time, at most this often.
_MAX_ROUNDS: Final = 100


class PartitionedTopicCalls:
    def __init__(self, catalog: Catalog, owner_rpc: OwnerRpc, deletions: Deletions) -> None:
        self._catalog = catalog
        self._owner_rpc = owner_rpc
        self._deletions = deletions

    async def partitioned_topics(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        name = parse_namespace_name(request.within)
        await self._catalog.namespaces.get(name)
        await self._catalog.sync()
        names = await self._catalog.list_partitioned_topics(name, include_system=request.include_system)
        return cut_page(names, request, self._catalog.settings.admin_max_names)

    async def create_partitioned(self, request: pb.PartitionsRequest) -> pb.Done:
        name = parse_topic_name(request.topic)
        check_not_system_topic(name)
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
        node = await self._catalog.partitioned.get(parse_topic_name(request.topic))
        return pb.PartitionedTopicAnswer(partitions=node.partitions, properties=node.properties)

    async def grow_partitioned(self, request: pb.PartitionsRequest) -> pb.Done:
        name = parse_topic_name(request.topic)
        await self._catalog.partitioned.grow(name, request.partitions, lambda new: self._copy_subscriptions(name, new))
        return pb.Done()

    async def delete_partitioned(self, request: pb.DeleteRequest) -> pb.Done:
        name = parse_topic_name(request.name)
        found = None if name.is_partition else await self._catalog.partitioned.find(name, fresh=True)
        if found is not None and not request.force:
            parts = [name.partition(index) for index in range(found.node.partitions)]
            await map_bounded(parts, self._check_unused)
        await self._deletions.delete_partitioned(name, force=request.force)
        return pb.Done()

    async def _check_unused(self, part: TopicName) -> None:
        await self._owner_rpc.call_topic_owner(part, "check_unused", pb.TopicRequest(topic=str(part)))

    async def _copy_subscriptions(self, name: TopicName, new: Sequence[TopicName]) -> None:
        """Create the subscriptions on the new partitions, at their first message.

        Subscriptions that are created or deleted in the meantime are copied, too: at the end the first partition has
        just those that the new ones were given. Raises `BrokerError`.
        """
        if not new:
            return
        await map_bounded(new, self._read_subscriptions)  # it creates the partition
        copied: dict[str, pb.DurableSubscription] = {}
        for _ in range(_MAX_ROUNDS):
            found = {one.subscription: one for one in await self._read_subscriptions(name.partition(0))}
            created = [one for one in found.values() if one.subscription not in copied]
            deleted = [subscription for subscription in copied if subscription not in found]
            if not created and not deleted:
                return
            await map_bounded(new, partial(self._copy_to, created, deleted))
            copied = found
        raise BrokerError(
            ErrorCode.UNKNOWN_ERROR,
            f"subscriptions of {name} were created or deleted {_MAX_ROUNDS} times while it grew, so its new partitions "
            "are not shown to clients: grow it again",
        )

    async def _read_subscriptions(self, name: TopicName) -> Sequence[pb.DurableSubscription]:
        return await read_subscriptions(self._owner_rpc, name)

    async def _copy_to(
        self, created: Sequence[pb.DurableSubscription], deleted: Sequence[str], partition: TopicName
    ) -> None:
        """Create and delete the subscriptions on a partition.

        The calls are repeated if their results are unknown. So errors that report the change as made are ignored.
        """
        call = self._owner_rpc.call_topic_owner
        for one in created:
            creation = pb.SubscriptionRequest(
                topic=str(partition),
                subscription=one.subscription,
                start=StartAt(earliest=True),
                properties=one.properties,
            )
            with _ignore(ErrorCode.ALREADY_EXISTS):
                await call(partition, "create_subscription", creation, repeat=True)
        for subscription in deleted:
            deletion = pb.DeleteSubscriptionRequest(topic=str(partition), subscription=subscription)
            with _ignore(ErrorCode.SUBSCRIPTION_NOT_FOUND):
                await call(partition, "delete_subscription", deletion, repeat=True)


@contextmanager
def _ignore(code: ErrorCode) -> Iterator[None]:
    try:
        yield
    except BrokerError as error:
        if error.code != code:
            raise
