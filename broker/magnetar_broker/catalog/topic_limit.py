"""Limits the number of topics in a namespace (`max_topics_per_namespace`: a policy, else the brokers' setting).

Each partition counts as a topic, even before it is stored. So a partitioned topic is created with all of its partitions
or refused, and the first use of a partition is never refused. System topics and non-persistent topics don't count.

All brokers may create topics of a namespace concurrently. If there is a limit, the broker first reads the namespace's
node and then counts the topics. The transaction that creates the topic also increments a number in that node, and fails
if the node has changed. So if two brokers have counted the same topics, only one creates its topic; the other counts
again. Creations at one broker wait for each other (`turn`): hundreds of concurrent ones would mostly retry.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from magnetar_broker import paths
from magnetar_broker.catalog.catalog_nodes import CatalogNodes, Found
from magnetar_broker.catalog.namespaces import require_active
from magnetar_broker.errors import BrokerError, NamespaceChanged
from magnetar_broker.name_locks import NameLocks
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_broker.system_topics import is_system_topic
from magnetar_metadata.errors import Refused
from magnetar_metadata.store import Put
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import NamespaceNode, PartitionedTopicNode, Policies
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import NamespaceName, TopicDomain, TopicName

__all__ = ["TopicLimit"]

_PARTITION: Final = re.compile(r"-partition-\d+$")
_READ_AT_ONCE: Final = 16
# Attempts of a creation that conflicts with others, before it fails without an effect.
_ATTEMPTS: Final = 30


class _CountAgain(Exception):
    """Another topic was created, or the limit was changed, since the topics were counted."""


class TopicLimit:
    def __init__(self, nodes: CatalogNodes, settings: CatalogSettings) -> None:
        self._nodes = nodes
        self._settings = settings
        self._turns: NameLocks[NamespaceName] = NameLocks()

    def get(self, name: TopicName, policies: Policies) -> int:
        """Return the limit that applies to a new topic of this name. 0: no limit."""
        if is_system_topic(name) or name.is_partition or not name.is_persistent:
            return 0
        if policies.HasField("max_topics_per_namespace"):
            return policies.max_topics_per_namespace
        return self._settings.max_topics_per_namespace

    @asynccontextmanager
    async def turn(self, name: TopicName, policies: Policies) -> AsyncIterator[None]:
        """Wait until this broker creates no other topic of the namespace, if the namespace has a limit."""
        if not self.get(name, policies):
            yield
            return
        async with self._turns.hold(name.namespace_name):
            yield

    async def check(self, name: TopicName, limit: int, more: int) -> None:
        """Raise `BrokerError` if the namespace would exceed the limit with `more` further topics. `name`: the topic
        that is to be created, or grows. The caller has synced the metadata store."""
        namespace = name.namespace_name
        count = await self._count(namespace)
        if count + more > limit:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{name}: namespace {namespace} has {count:,} topics, and with {more:,} more it would exceed "
                f"max_topics_per_namespace (policy or setting), which is {limit:,}. Each partition counts",
            )

    def claim(self, namespace: NamespaceName, found: Found[NamespaceNode]) -> Put:
        """Return a change of the namespace's node. In the creation's transaction, it makes the creation fail if another
        topic was created after `found` was read."""
        node = NamespaceNode()
        node.CopyFrom(found.node)
        node.counted_creations += 1
        return self._nodes.build_next(paths.namespace(namespace), found, node)

    def check_unchanged(self, name: TopicName, counted: NamespaceNode, now: NamespaceNode) -> None:
        """Raise an error, which `run` handles, if the count or the limit may have changed since `counted` was read."""
        limit = self.get(name, now.policies)
        same = (counted.partitioned_made, counted.counted_creations) == (now.partitioned_made, now.counted_creations)
        if limit and not (same and limit == self.get(name, counted.policies)):
            raise _CountAgain

    async def run(self, name: TopicName, more: int, create: Callable[[Found[NamespaceNode]], Awaitable[None]]) -> None:
        """Call `create` with the namespace's node, if the namespace may have `more` further topics. If there is a
        limit, `create` changes that node, or calls `check_unchanged` with it. Raises `BrokerError`."""
        for _ in range(_ATTEMPTS):
            found = await self._read(name.namespace_name)
            async with self.turn(name, found.node.policies):
                if more and self.get(name, found.node.policies):
                    found = await self._read(name.namespace_name)
                    if limit := self.get(name, found.node.policies):
                        await self.check(name, limit, more)
                with suppress(_CountAgain, Refused):
                    await create(found)
                    return
        raise NamespaceChanged(f"{name} is not changed, since others of its namespace were at the same time: try again")

    async def _read(self, name: NamespaceName) -> Found[NamespaceNode]:
        await self._nodes.sync()
        found = await self._nodes.read(NamespaceNode, paths.namespace(name))
        require_active(name, None if found is None else found.node)
        assert found is not None
        return found

    async def _count(self, namespace: NamespaceName) -> int:
        plain, partitioned = await asyncio.gather(
            self._list(paths.TOPICS, namespace), self._list(paths.PARTITIONED, namespace)
        )
        count = sum(not _PARTITION.search(one.local_name) for one in plain)
        for at in range(0, len(partitioned), _READ_AT_ONCE):
            some = [self._count_partitions(one) for one in partitioned[at : at + _READ_AT_ONCE]]
            count += sum(await asyncio.gather(*some))
        return count

    async def _count_partitions(self, name: TopicName) -> int:
        found = await self._nodes.read(PartitionedTopicNode, paths.partitioned(name))
        return 0 if found is None else max(found.node.partitions, found.node.growing_to)

    async def _list(self, root: str, namespace: NamespaceName) -> list[TopicName]:
        names = []
        domain = TopicDomain.PERSISTENT
        for encoded in await self._nodes.list_children(f"{root}/{namespace}/{domain}"):
            try:
                name = TopicName.from_path(domain, namespace.tenant, namespace.namespace, encoded)
            except InvalidTopicName:
                continue  # another program created the node
            if not is_system_topic(name):
                names.append(name)
        return names
