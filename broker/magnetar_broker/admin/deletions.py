"""Delete what is in a namespace, and all partitions of a partitioned topic."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence

from magnetar_broker.admin.bundle_calls import BundleOwners
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.schema_registry import SchemaRegistry
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["Deletions"]

_log = logging.getLogger(__name__)


class Deletions:
    def __init__(
        self, catalog: Catalog, owner_rpc: OwnerRpc, bundle_owners: BundleOwners, schemas: SchemaRegistry
    ) -> None:
        self._catalog = catalog
        self._schemas = schemas
        self._owner_rpc = owner_rpc
        self._bundle_owners = bundle_owners

    async def delete_topics(self, namespace: NamespaceName) -> None:
        """Delete all topics of a namespace, by force."""
        for text in await self._catalog.list_partitioned_topics(namespace, include_system=True):
            await _ignore_not_found(self.delete_partitioned(TopicName.parse(text), force=True))
        topics = [TopicName.parse(text) for text in await self._catalog.list_topics(namespace, include_system=True)]
        await map_bounded(topics, lambda topic: self._delete_marked(topic, force=True, with_namespace=True))

    async def delete_partitioned(self, name: TopicName, *, force: bool) -> None:
        async def delete_partitions(partitions: Sequence[TopicName]) -> None:
            await map_bounded(partitions, lambda partition: self._delete_marked(partition, force=force))

        await self._catalog.partitioned.delete(name, delete_partitions, self._schemas.prepare_topic_deletion)

    async def delete_empty_partitioned(self, name: TopicName) -> bool:
        """Delete the partitioned topic if it exists and none of its partitions does. Return whether it is deleted.
        Raises `BrokerError`."""
        if await self._catalog.partitioned.find(name) is None:
            return False
        if not await self._catalog.partitioned.begin_deletion_if_empty(name):
            return False
        await self.delete_partitioned(name, force=False)
        return True

    async def release_bundles(self, namespace: NamespaceName) -> None:
        """Unload the bundles of a namespace that is being deleted. An owner that can't be reached now notices by itself
        that the namespace was deleted."""
        try:
            await self._bundle_owners.unload_all(namespace)
        except BrokerError as error:
            _log.info("not all bundles of namespace %s, which is deleted, could be unloaded: %s", namespace, error)

    async def _delete_marked(self, name: TopicName, *, force: bool, with_namespace: bool = False) -> None:
        """Delete a topic of which the namespace or partitioned topic is marked as being deleted. Until that is done no
        topic is created under the name, so the call may be repeated."""
        if await self._catalog.get_topic_state(name) is not None:
            request = pb.DeleteRequest(name=str(name), force=force, with_namespace=with_namespace)
            await _ignore_not_found(self._owner_rpc.call_topic_owner(name, "delete_topic", request, repeat=True))


async def _ignore_not_found(deletion: Awaitable[object]) -> None:
    try:
        await deletion
    except BrokerError as error:
        if error.code not in (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_FOUND):
            raise
