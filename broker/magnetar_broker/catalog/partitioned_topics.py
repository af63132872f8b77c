"""Partitioned topics: the number of partitions of a topic. Each partition is a topic like any other.

**Names.** A topic without partitions and a partitioned one never share a name. Creating the first checks the
namespace's version in its transaction. Creating the second raises that version, then looks for the first, and is
undone if it exists. A partition is created only if its partitioned topic has it, at the version at which that was
read.

**Growing** is announced (`growing_to`). Then the new partitions get the subscriptions of the first one, and then
clients see them: so a subscription whose consumers are away misses none of their messages. topic_router.py explains how
changes of subscriptions at the same time reach all partitions.

**Watches** of a namespace's topics see the names in a folder, and no numbers of partitions. So a growth also writes the
folder itself, as does a deletion, since the same name may return with another number.

**Deleting** marks the node, then deletes the
partitions and the ledgers of the topic's schema, then the node with that of the schema. If it is interrupted at any
step, the same call again finishes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from magnetar_broker import paths
from magnetar_broker.catalog.catalog_nodes import CatalogNodes, Found
from magnetar_broker.catalog.namespaces import deletion_in_progress, require_active
from magnetar_broker.catalog.topic_limit import TopicLimit
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_broker.topic_properties import check_properties
from magnetar_metadata.errors import Refused
from magnetar_metadata.store import ANY, Change, Put
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Deletion, NamespaceNode, PartitionedTopicNode
from magnetar_wire.topic_name import TopicName

__all__ = ["PartitionedTopics", "PrepareSchemaDeletion"]

_ROUNDS: Final = 5
PrepareSchemaDeletion = Callable[[TopicName, Callable[[], Awaitable[bool]]], Awaitable[Sequence[Change]]]


class PartitionedTopics:
    def __init__(self, nodes: CatalogNodes, settings: CatalogSettings, limit: TopicLimit) -> None:
        self._nodes = nodes
        self._settings = settings
        self._limit = limit

    async def find(self, name: TopicName, *, fresh: bool = False) -> Found[PartitionedTopicNode] | None:
        """Return the topic's node, marked or not."""
        return await self._nodes.read(PartitionedTopicNode, paths.partitioned(name), fresh=fresh)

    async def get(self, name: TopicName) -> PartitionedTopicNode:
        found = await self.find(name, fresh=True)
        return _existing(name, found.node if found else None)

    async def list_announced(self, name: TopicName) -> list[TopicName]:
        """Return the partitions, with those that a growth has announced and clients do not know yet; as new as the
        call."""
        node = await self.get(name)
        return [name.partition(index) for index in range(max(node.partitions, node.growing_to))]

    async def create(self, name: TopicName, partitions: int, properties: Mapping[str, str]) -> None:
        if name.is_partition:
            raise BrokerError(
                ErrorCode.INVALID_TOPIC_NAME, f"{name} has the name of a partition, and can't have partitions"
            )
        self._check(partitions)
        node = PartitionedTopicNode(
            incarnation=self._nodes.new_incarnation(), partitions=partitions, properties=properties
        )

        await self._refuse_plain_topic(name)
        creation = self._nodes.build_put(paths.partitioned(name), node)

        async def create(found: Found[NamespaceNode]) -> None:
            def count_topic(namespace: NamespaceNode | None) -> NamespaceNode:
                namespace = require_active(name.namespace_name, namespace)
                self._limit.check_unchanged(name, found.node, namespace)
                namespace.partitioned_made += 1
                return namespace

            path = paths.namespace(name.namespace_name)
            try:
                await self._nodes.change(NamespaceNode, path, count_topic, along=[creation])
            except Refused:
                await self.get(name)  # being deleted
                raise BrokerError(ErrorCode.ALREADY_EXISTS, f"there is a partitioned topic {name} already") from None

        await self._limit.run(name, partitions, create)
        await self._nodes.sync()
        try:
            await self._refuse_plain_topic(name)
        except BrokerError:
            await self._delete_node(name, node.incarnation)
            raise

    async def update_properties(self, name: TopicName, properties: Mapping[str, str], removed: Iterable[str]) -> None:
        """Set these properties of the topic, and remove others."""

        def update(node: PartitionedTopicNode | None) -> PartitionedTopicNode:
            node = _existing(name, node)
            for key in removed:
                node.properties.pop(key, None)
            node.properties.update(properties)
            check_properties(node.properties)
            return node

        await self._nodes.change(PartitionedTopicNode, paths.partitioned(name), update)

    async def grow(
        self, name: TopicName, partitions: int, prepare: Callable[[Sequence[TopicName]], Awaitable[None]]
    ) -> None:
        """Grow the topic. `prepare` gives new partitions the subscriptions of the others; a retry calls it again for
        the same partitions."""
        self._check_maximum(partitions)

        def announce(node: PartitionedTopicNode | None) -> PartitionedTopicNode:
            node = _existing(name, node)
            if partitions < node.partitions:
                raise BrokerError(
                    ErrorCode.NOT_ALLOWED,
                    f"{name} has {node.partitions:,} partitions already, and can't shrink to {partitions:,}",
                )
            node.growing_to = max(node.growing_to, partitions)
            return node

        def complete(node: PartitionedTopicNode | None) -> PartitionedTopicNode:
            node = _existing(name, node)
            assert announcement is not None
            if node.incarnation != announcement.incarnation:
                raise BrokerError(ErrorCode.INCARNATION_CHANGED, f"{name} was deleted and created again")
            node.partitions = max(node.partitions, partitions)
            return node

        path = paths.partitioned(name)
        announcement: PartitionedTopicNode | None = None

        async def grow(found: Found[NamespaceNode]) -> None:
            nonlocal announcement
            is_limited = self._limit.get(name, found.node.policies)
            along = [self._limit.claim(name.namespace_name, found)] if is_limited else ()
            announcement = await self._nodes.change(PartitionedTopicNode, path, announce, along)

        node = await self.get(name)
        await self._limit.run(name, max(0, partitions - max(node.partitions, node.growing_to)), grow)
        assert announcement is not None
        await prepare([name.partition(index) for index in range(announcement.partitions, partitions)])
        await self._nodes.change(PartitionedTopicNode, path, complete, [_notify_watches(name)])

    async def delete(
        self,
        name: TopicName,
        delete_partitions: Callable[[Sequence[TopicName]], Awaitable[None]],
        prepare_schema_deletion: PrepareSchemaDeletion,
    ) -> None:
        """`prepare_schema_deletion` deletes the ledgers of the topic's schema, and returns the changes that delete the
        schema's node. Its argument reads afresh whether this topic is still being deleted."""

        def marked(node: PartitionedTopicNode | None) -> PartitionedTopicNode:
            if node is None:
                raise no_partitioned_topic(name)
            node.deletion = Deletion.DELETION_BEGUN
            return node

        node = await self._nodes.change(PartitionedTopicNode, paths.partitioned(name), marked)
        assert node is not None
        await delete_partitions([name.partition(index) for index in range(max(node.partitions, node.growing_to))])

        async def is_being_deleted() -> bool:
            found = await self.find(name, fresh=True)
            if found is None or found.node.incarnation != node.incarnation:
                return False
            # A partitioned topic that is about to be undone, since there is a plain one: the schema is that one's.
            return not await self._nodes.exists(paths.topic(name))

        for _ in range(_ROUNDS):
            try:
                await self._delete_node(name, node.incarnation, await prepare_schema_deletion(name, is_being_deleted))
                return
            except Refused:
                continue  # the schema has changed since then
        raise BrokerError(
            ErrorCode.METADATA_ERROR, f"partitioned topic {name} is not deleted yet: its schema changed: try again"
        )

    async def begin_deletion_if_empty(self, name: TopicName) -> bool:
        """Mark the topic as being deleted if none of its partitions exists. Return whether it is marked.

        A mark that creations of partitions remove (`allow_partitions`) is set before the partitions are looked up. So
        the deletion begins only if none was created since.
        """

        def mark(node: PartitionedTopicNode | None) -> PartitionedTopicNode:
            node = _existing(name, node)
            node.has_no_partitions = True
            return node

        def begin(node: PartitionedTopicNode | None) -> PartitionedTopicNode:
            node = _existing(name, node)
            if node.has_no_partitions:
                node.deletion = Deletion.DELETION_BEGUN
            return node

        path = paths.partitioned(name)
        node = await self._nodes.change(PartitionedTopicNode, path, mark)
        assert node is not None
        await self._nodes.sync()
        for index in range(max(node.partitions, node.growing_to)):
            if await self._nodes.exists(paths.topic(name.partition(index))):
                await self.allow_partitions(name)
                return False
        node = await self._nodes.change(PartitionedTopicNode, path, begin)
        return node is not None and node.deletion == Deletion.DELETION_BEGUN

    async def allow_partitions(self, name: TopicName) -> None:
        """Prevent a deletion that `begin_deletion_if_empty` is about to begin, unless it has begun."""

        def remove_mark(node: PartitionedTopicNode | None) -> PartitionedTopicNode | None:
            if node is None:
                return None
            node.has_no_partitions = False
            return node

        await self._nodes.change(PartitionedTopicNode, paths.partitioned(name), remove_mark)

    async def _delete_node(self, name: TopicName, incarnation: bytes, along: Sequence[Change] = ()) -> None:
        def deleted(node: PartitionedTopicNode | None) -> PartitionedTopicNode | None:
            return node if node is not None and node.incarnation != incarnation else None

        along = [*along, _notify_watches(name)]
        await self._nodes.change(PartitionedTopicNode, paths.partitioned(name), deleted, along)

    async def _refuse_plain_topic(self, name: TopicName) -> None:
        if await self._nodes.exists(paths.topic(name)):
            raise BrokerError(
                ErrorCode.ALREADY_EXISTS,
                f"there is a topic {name} without partitions: delete it first, or use another name",
            )

    def _check(self, partitions: int) -> None:
        if not partitions:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "0 partitions: a partitioned topic has at least 1")
        self._check_maximum(partitions)

    def _check_maximum(self, partitions: int) -> None:
        maximum = self._settings.max_num_partitions_per_partitioned_topic
        if partitions > maximum:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"{partitions:,} partitions: a partitioned topic has 1 to {maximum:,} "
                "(max_num_partitions_per_partitioned_topic)",
            )


def _notify_watches(name: TopicName) -> Change:
    """Return the change by which watches of the folder's names notice that a number of partitions has changed."""
    return Put(paths.folder(paths.PARTITIONED, name.namespace_name, name.domain), b"", ANY)


def no_partitioned_topic(name: TopicName) -> BrokerError:
    return BrokerError(ErrorCode.NOT_FOUND, f"there is no partitioned topic {name}")


def _existing(name: TopicName, node: PartitionedTopicNode | None) -> PartitionedTopicNode:
    if node is None:
        raise no_partitioned_topic(name)
    if node.deletion != Deletion.DELETION_NONE:
        raise deletion_in_progress(f"partitioned topic {name}")
    return node
