"""The catalog: which tenants, namespaces and topics there are, and what may be made where.

    /tenants, /namespaces, /partitioned     its own: tenants.py, namespaces.py, partitioned_topics.py
    /topics                                 the managed ledger's; the catalog only lists them

What is read to decide whether something may be *made* is read afresh, and goes into the transaction that makes it as a
check of its version (`creation`), so that no deletion and no growth can happen in between. What holds for a topic as it
is *opened* is read afresh too, since any broker may have changed it (`check_topic`). What is read to *find* something
is a few seconds old at most: a namespace is kept in memory for so long, a partitioned topic not at all, since it has to
grow at once. That something is not there is believed of a fresh read alone: an administrator who has just made it at
another broker must find it here. Nothing is watched: ten thousand topics would be as many watches.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar_broker import paths
from magnetar_broker.admin.catalog_nodes import CatalogNodes, Found
from magnetar_broker.admin.namespace_lease_calls import NamespaceLeaseCalls
from magnetar_broker.admin.namespaces import Namespaces, standing
from magnetar_broker.admin.options import CatalogOptions
from magnetar_broker.admin.partitioned_topics import PartitionedTopics
from magnetar_broker.admin.tenants import Tenants
from magnetar_broker.core.system_topics import SYSTEM_NAMESPACE, SYSTEM_PREFIX, is_system_topic
from magnetar_broker.errors import BrokerError
from magnetar_metadata.store import Change, Check, MetadataStore
from magnetar_protos.admin_pb2 import TenantSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Deletion, NamespaceNode, Policies
from magnetar_protos.managed_ledger_pb2 import ManagedLedgerNode, TopicState
from magnetar_wire.clock import Clock
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import DEFAULT_NAMESPACE, PUBLIC_TENANT, NamespaceName, TopicDomain, TopicName

__all__ = ["Catalog"]

_CACHED_NAMESPACES: Final = 1000
# A local name that is its own encoding, and one that a topic may have.
_STANDS_FOR_ITSELF: Final = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,700}")
_OURS: Final = (NamespaceName(PUBLIC_TENANT, DEFAULT_NAMESPACE), SYSTEM_NAMESPACE)


class Catalog:
    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        randomness: Randomness,
        options: CatalogOptions | None = None,
        cluster: str = "standalone",
    ) -> None:
        self.options = options or CatalogOptions()
        self._clock = clock
        self._nodes = CatalogNodes(store, clock, randomness, self.options.metadata_operation_timeout_s)
        max_partitions = self.options.max_num_partitions_per_partitioned_topic
        self.tenants = Tenants(self._nodes, cluster)
        self.namespaces = Namespaces(self._nodes, self.options)
        self.namespace_leases = NamespaceLeaseCalls(self._nodes, randomness, self.options.max_leases_per_namespace)
        self.partitioned = PartitionedTopics(self._nodes, max_partitions)
        # When each was read, on the monotonic clock; the one that was asked for last is at the end.
        self._cache: OrderedDict[NamespaceName, tuple[float, Found[NamespaceNode]]] = OrderedDict()

    async def bootstrap(self) -> None:
        """Makes what every cluster has, where it is not there."""
        for name in _OURS:
            for create in (
                lambda name=name: self.tenants.create(name.tenant, TenantSettings()),
                lambda name=name: self.namespaces.create(name, Policies()),
            ):
                await _unless_there(create)

    async def check_topic(self, name: TopicName) -> Policies:
        """Raises `BrokerError` where there can't be such a topic; returns what holds in its namespace."""
        _check_persistent(name)
        namespace = await self.namespace(name.namespace_name, fresh=True)
        if name.is_partition:
            await self._partition(name)
        return standing(name.namespace_name, namespace.node).policies

    async def policies(self, name: NamespaceName) -> Policies:
        """What holds in a namespace, as it was a few seconds ago at most. Raises `BrokerError`."""
        return (await self.namespace(name)).node.policies

    async def namespace(self, name: NamespaceName, *, fresh: bool = False) -> Found[NamespaceNode]:
        """Its node, marked or not: as it was a few seconds ago at most, or as it is. Raises NOT_FOUND."""
        now = self._clock.monotonic()
        kept = self._cache.get(name)
        if kept is not None and not fresh and now - kept[0] < self.options.metadata_cache_ttl_s:
            self._cache.move_to_end(name)
            return kept[1]
        self._cache.pop(name, None)
        try:
            found = await self.namespaces.get(name, fresh=fresh)
        except BrokerError as error:
            if fresh or error.code != ErrorCode.NOT_FOUND:
                raise
            # One that was just made elsewhere may not be known here yet.
            found = await self.namespaces.get(name)
        self._cache[name] = now, found
        self._cache.move_to_end(name)
        if len(self._cache) > _CACHED_NAMESPACES:
            self._cache.popitem(last=False)
        return found

    async def creation(self, name: TopicName, *, asked: bool = False) -> list[Change]:
        """What has to hold while the topic is made: checks for the transaction that makes it.

        Raises `BrokerError` where it may not be made: on first use, or at all, where somebody `asked` for it.
        """
        await self._nodes.sync()
        namespace = await self.namespaces.get(name.namespace_name, fresh=False)
        policies = standing(name.namespace_name, namespace.node).policies
        # A namespace that was deleted and created again may be at the same version.
        checks: list[Change] = [
            Check(paths.namespace(name.namespace_name), namespace.version),
            Check(paths.namespace_incarnation(namespace.node.incarnation), 0),
        ]
        await self._check_room(name)
        if name.is_partition:
            version = await self._partition(name)
            return [*checks, Check(paths.partitioned(name.base), version)]
        if not asked:
            if is_system_topic(name):
                raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} is a topic of the system, which makes it itself")
            if not self._auto_creation(policies)[0]:
                raise BrokerError(
                    ErrorCode.TOPIC_NOT_FOUND,
                    f"there is no topic {name}, and none is made on first use (allow_auto_topic_creation)",
                )
        if await self.partitioned.find(name) is not None:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED, f"{name} is a partitioned topic: its messages are in {name.partition(0)} …"
            )
        return checks

    async def partitions(self, name: TopicName, create: bool) -> int:
        """How many the topic has, 0 for one without partitions, which need not be there yet if `create` allows it.

        Raises TOPIC_NOT_FOUND.
        """
        _check_persistent(name)
        namespace = await self.namespace(name.namespace_name)
        try:
            there = await self._count(name, namespace.node)
        except BrokerError as error:
            if error.code not in (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_ALLOWED):
                raise
            there = None
        if there is None:
            namespace = await self.namespace(name.namespace_name, fresh=True)
            there = await self._count(name, namespace.node)
        if there is not None:
            return there
        policies = namespace.node.policies
        allowed, partitions = self._auto_creation(policies)
        if not (create and allowed) and not is_system_topic(name):
            reason = "allow_auto_topic_creation is off" if create else "nobody asked for it to be made"
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {name}, and {reason}")
        if partitions and not is_system_topic(name):
            await _unless_there(lambda: self.partitioned.create(name, partitions, {}))
            return (await self.partitioned.get(name)).partitions
        return 0

    async def parts(self, name: TopicName) -> list[TopicName]:
        """Return the topic's partitions, or the topic itself if it has none. Raises TOPIC_NOT_FOUND."""
        partitions = await self.partitions(name, create=False)
        return [name.partition(index) for index in range(partitions)] if partitions else [name]

    async def _count(self, name: TopicName, namespace: NamespaceNode) -> int | None:
        """None: there is no such topic. Raises `BrokerError` where there can be none."""
        standing(name.namespace_name, namespace)
        if name.is_partition:
            await self._partition(name)
            return 0
        found, stored = await asyncio.gather(self.partitioned.find(name), self._nodes.exists(paths.topic(name)))
        if found is not None:
            if found.node.deletion != Deletion.DELETION_NONE:
                raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"partitioned topic {name} is being deleted")
            return found.node.partitions
        return 0 if stored else None

    async def topic_state(self, name: TopicName) -> TopicState | None:
        """Of its log; None: there is none."""
        found = await self._nodes.read(ManagedLedgerNode, paths.topic(name), fresh=True)
        return found.node.state if found else None

    async def sync(self) -> None:
        """What is read after it is at least as new."""
        await self._nodes.sync()

    async def topics(self, namespace: NamespaceName, *, include_system: bool = False) -> list[str]:
        """All topics in it that are stored, partitions among them, by their full names, in order."""
        names = []
        for domain in TopicDomain:
            names += await self._listed(paths.TOPICS, namespace, domain, include_system)
        return sorted(names)

    async def partitioned_topics(self, namespace: NamespaceName, *, include_system: bool = False) -> list[str]:
        names = []
        for domain in TopicDomain:
            names += await self._listed(paths.PARTITIONED, namespace, domain, include_system)
        return sorted(names)

    async def delete_tenant(
        self,
        tenant: str,
        delete_topics: Callable[[NamespaceName], Awaitable[None]] | None,
        release: Callable[[NamespaceName], Awaitable[None]] | None = None,
    ) -> None:
        """`delete_topics` deletes all that is in a namespace, where it is by force; `release`: see there."""
        if tenant in [name.tenant for name in _OURS]:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"tenant {tenant} is there in every cluster, and stays")

        async def delete_namespace(name: NamespaceName) -> None:
            await _unless_gone(lambda: self.delete_namespace(name, delete_topics, release))

        await self.tenants.delete(tenant, delete_namespace if delete_topics else None)

    async def delete_namespace(
        self,
        name: NamespaceName,
        delete_topics: Callable[[NamespaceName], Awaitable[None]] | None,
        release: Callable[[NamespaceName], Awaitable[None]] | None = None,
    ) -> None:
        """`release` has brokers let go of its bundles, before it is gone."""
        if name in _OURS:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"namespace {name} is there in every cluster, and stays")
        self._cache.pop(name, None)
        await self.namespaces.delete(name, self._everything, delete_topics, release)

    async def update_policies(self, name: NamespaceName, policies: Policies) -> None:
        await self.namespaces.update(name, policies)
        self._cache.pop(name, None)

    async def _everything(self, namespace: NamespaceName) -> list[str]:
        await self._nodes.sync()
        return [
            *await self.topics(namespace, include_system=True),
            *await self.partitioned_topics(namespace, include_system=True),
        ]

    def _auto_creation(self, policies: Policies) -> tuple[bool, int]:
        """Whether topics are made on first use, and with how many partitions."""
        if policies.HasField("auto_topic_creation"):
            return policies.auto_topic_creation.allowed, policies.auto_topic_creation.partitions
        partitioned = self.options.allow_auto_topic_creation_type == "partitioned"
        return self.options.allow_auto_topic_creation, self.options.default_num_partitions if partitioned else 0

    async def _check_room(self, name: TopicName) -> None:
        """Those who make topics at the same time may pass the limit by as many as they are."""
        limit = self.options.max_topics_per_namespace
        if limit and not is_system_topic(name):
            there = len(await self.topics(name.namespace_name))
            if there >= limit:
                raise BrokerError(
                    ErrorCode.NOT_ALLOWED,
                    f"{name} is not made: namespace {name.namespace_name} has {there:,} topics, and "
                    f"max_topics_per_namespace is {limit:,}",
                )

    async def _partition(self, name: TopicName) -> int:
        """Its partitioned topic's version; raises TOPIC_NOT_FOUND where that has it not."""
        found = await self.partitioned.find(name.base)
        if found is None:
            raise BrokerError(
                ErrorCode.TOPIC_NOT_FOUND,
                f"{name} is named as a partition, and there is no partitioned topic {name.base}",
            )
        node = found.node
        if node.deletion != Deletion.DELETION_NONE:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"{name.base}, which {name} is a part of, is being deleted")
        if name.partition_index >= max(node.partitions, node.growing_to):
            raise BrokerError(
                ErrorCode.TOPIC_NOT_FOUND, f"{name.base} has {node.partitions:,} partitions, and no {name}"
            )
        return found.version

    async def _listed(
        self, root: str, namespace: NamespaceName, domain: TopicDomain, include_system: bool
    ) -> list[str]:
        names = []
        shown = include_system or namespace != SYSTEM_NAMESPACE
        for encoded in await self._nodes.names(f"{root}/{namespace}/{domain}"):
            if _STANDS_FOR_ITSELF.fullmatch(encoded):  # nearly all do, and there may be very many
                if shown and (include_system or not encoded.startswith(SYSTEM_PREFIX)):
                    names.append(f"{domain}://{namespace}/{encoded}")
                continue
            try:
                name = TopicName.from_path(domain, namespace.tenant, namespace.namespace, encoded)
            except InvalidTopicName:
                continue  # an operator's slip: it is no topic
            if include_system or not is_system_topic(name):
                names.append(str(name))
        return names


def _check_persistent(name: TopicName) -> None:
    if name.domain is not TopicDomain.PERSISTENT:
        raise BrokerError(ErrorCode.UNSUPPORTED, f"{name}: topics that are not persistent are not served yet")


async def _unless_there(create: Callable[[], Awaitable[None]]) -> None:
    try:
        await create()
    except BrokerError as error:
        if error.code != ErrorCode.ALREADY_EXISTS:
            raise


async def _unless_gone(delete: Callable[[], Awaitable[None]]) -> None:
    try:
        await delete()
    except BrokerError as error:
        if error.code != ErrorCode.NOT_FOUND:
            raise
