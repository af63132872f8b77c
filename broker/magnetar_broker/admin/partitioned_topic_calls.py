"""Admin calls on partitioned topics as a whole. Rules of their nodes are in partitioned_topics.py."""

from __future__ import annotations

from typing import Final

from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.deletions import Deletions
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.name_pages import cut_page
from magnetar_broker.admin.names import parse_namespace_name, parse_topic_name
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.admin.partition_growth import PartitionGrowth
from magnetar_broker.admin.topic_calls import check_not_system_topic
from magnetar_broker.errors import BrokerError
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import TopicName

__all__ = ["PartitionedTopicCalls"]

# Of a topic's properties, keys and values together.
_MAX_PROPERTIES_BYTES: Final = 16_384


class PartitionedTopicCalls:
    def __init__(self, catalog: Catalog, owner_rpc: OwnerRpc, deletions: Deletions) -> None:
        self._catalog = catalog
        self._owner_rpc = owner_rpc
        self._deletions = deletions
        self._growth = PartitionGrowth(owner_rpc)

    async def partitioned_topics(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        name = parse_namespace_name(request.within)
        await self._catalog.namespaces.get(name)
        await self._catalog.sync()
        names = await self._catalog.partitioned_topics(name, include_system=request.include_system)
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
        await self._catalog.partitioned.grow(
            name, request.partitions, lambda new: self._growth.copy_subscriptions(name, new)
        )
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
