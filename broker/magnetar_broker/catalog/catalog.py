"""The catalog: which tenants, namespaces and partitioned topics exist, and what may be created.

    /tenants, /namespaces, /partitioned     its own: tenants.py, namespaces.py, partitioned_topics.py
    /topics                                 the managed ledger's; the catalog only lists them

What decides whether something may be *created* is read afresh, and goes into the transaction that creates it as a
check of its version (`prepare_creation`), so that no deletion and no growth can happen in between. What holds for a
topic when it is *opened* is read afresh, too, since any broker may have changed it (`check_topic`). What is read to
*find* something may be a few seconds old: namespaces are cached for that time. Partitioned topics are not cached, since
they have to grow at once. Only a fresh read proves that something does not exist: an administrator who has just created
it at another broker must find it here. There are no watches: ten thousand topics would need as many.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from magnetar_broker import paths
from magnetar_broker.catalog.catalog_nodes import CatalogNodes, Found
from magnetar_broker.catalog.clusters import Clusters
from magnetar_broker.catalog.namespace_lease_store import NamespaceLeaseStore
from magnetar_broker.catalog.namespaces import Namespaces, require_active
from magnetar_broker.catalog.partitioned_topics import PartitionedTopics
from magnetar_broker.catalog.policies import PolicyLimits
from magnetar_broker.catalog.tenants import Tenants
from magnetar_broker.catalog.topic_limit import TopicLimit
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_broker.system_topics import SYSTEM_NAMESPACE, is_system_name, is_system_topic
from magnetar_broker.topic_properties import decode_properties
from magnetar_metadata.store import Change, Check, MetadataStore
from magnetar_protos.admin_pb2 import TenantSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Deletion, NamespaceNode, Policies
from magnetar_protos.cursor_pb2 import CursorNode
from magnetar_protos.managed_ledger_pb2 import ManagedLedgerNode, TopicState
from magnetar_wire.clock import Clock
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.limits import MAX_MESSAGE_BYTES
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import DEFAULT_NAMESPACE, PUBLIC_TENANT, NamespaceName, TopicDomain, TopicName

__all__ = ["Catalog"]

_CACHED_NAMESPACES: Final = 10_000
# A local name that is its own encoding, and one that a topic may have.
_UNENCODED: Final = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,700}")
_BUILT_IN: Final = (NamespaceName(PUBLIC_TENANT, DEFAULT_NAMESPACE), SYSTEM_NAMESPACE)


class Catalog:
    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        randomness: Randomness,
        settings: CatalogSettings | None = None,
        cluster: str = "standalone",
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.settings = settings or CatalogSettings()
        self.cluster = cluster
        self._max_message_bytes = max_message_bytes
        self._clock = clock
        self.nodes = self._nodes = CatalogNodes(
            store, clock, randomness, self.settings.metadata_operation_timeout_seconds
        )
        self.clusters = Clusters(self._nodes, cluster)
        self.tenants = Tenants(self._nodes, self.clusters)
        self.namespaces = Namespaces(self._nodes, self.settings, lambda: self.policy_limits)
        self.namespace_leases = NamespaceLeaseStore(self._nodes, randomness, self.settings.max_leases_per_namespace)
        self.topic_limit = TopicLimit(self._nodes, self.settings)
        self.partitioned = PartitionedTopics(self._nodes, self.settings, self.topic_limit)
        # With the time when it was read, on the monotonic clock; the one that was used last is at the end.
        self._cache: OrderedDict[NamespaceName, tuple[float, Found[NamespaceNode]]] = OrderedDict()

    @property
    def policy_limits(self) -> PolicyLimits:
        """What policies have to fit now."""
        return PolicyLimits(
            self.settings.max_num_partitions_per_partitioned_topic, self._max_message_bytes, self.cluster
        )

    async def bootstrap(self) -> None:
        """Create the tenants and namespaces that every cluster has."""
        for name in _BUILT_IN:
            for create in (
                lambda name=name: self.tenants.create(name.tenant, TenantSettings()),
                lambda name=name: self.namespaces.create(name, Policies()),
            ):
                await _ignore_exists(create)

    async def check_topic(self, name: TopicName) -> Policies:
        """Return the policies of the topic's namespace. Raises `BrokerError` if there can't be such a topic."""
        namespace = await self.get_namespace(name.namespace_name, fresh=True)
        if name.is_partition:
            await self._check_partition(name)
        return require_active(name.namespace_name, namespace.node).policies

    async def get_policies(self, name: NamespaceName) -> Policies:
        """Return a namespace's policies, at most a few seconds old. Raises `BrokerError`."""
        return (await self.get_namespace(name)).node.policies

    async def get_namespace(self, name: NamespaceName, *, fresh: bool = False) -> Found[NamespaceNode]:
        """Return a namespace's node, marked or not: at most a few seconds old, or as it is now. Raises NOT_FOUND."""
        now = self._clock.monotonic()
        cached = self._cache.get(name)
        if cached is not None and not fresh and now - cached[0] < self.settings.metadata_cache_ttl_seconds:
            self._cache.move_to_end(name)
            return cached[1]
        self._cache.pop(name, None)
        try:
            found = await self.namespaces.get(name, fresh=fresh)
        except BrokerError as error:
            if fresh or error.code != ErrorCode.NOT_FOUND:
                raise
            # It may have been created at another broker a moment ago.
            found = await self.namespaces.get(name)
        self._cache[name] = now, found
        self._cache.move_to_end(name)
        if len(self._cache) > _CACHED_NAMESPACES:
            self._cache.popitem(last=False)
        return found

    async def prepare_creation(self, name: TopicName, *, explicit: bool = False) -> list[Change]:
        """Return the checks of the transaction that creates the topic.

        `explicit`: a request creates the topic; else it is created on first use. Raises `BrokerError` if it must not be
        created.
        """
        await self._nodes.sync()
        namespace = await self.namespaces.get(name.namespace_name, fresh=False)
        policies = require_active(name.namespace_name, namespace.node).policies
        # A namespace that was deleted and created again may be at the same version.
        checks: list[Change] = [
            Check(paths.namespace(name.namespace_name), namespace.version),
            Check(paths.namespace_incarnation(namespace.node.incarnation), 0),
        ]
        if limit := self.topic_limit.get(name, policies):
            await self.topic_limit.check(name, limit, 1)
            checks[0] = self.topic_limit.claim(name.namespace_name, namespace)
        if name.is_partition:
            version = await self._check_partition(name)
            return [*checks, Check(paths.partitioned(name.base), version)]
        if not explicit:
            if is_system_topic(name):
                raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} is a system topic, which the system creates itself")
            if not self._get_auto_creation(policies)[0]:
                raise BrokerError(
                    ErrorCode.TOPIC_NOT_FOUND,
                    f"there is no topic {name}, and none is created on first use (allow_auto_topic_creation)",
                )
        if await self.partitioned.find(name) is not None:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED, f"{name} is a partitioned topic: its messages are in {name.partition(0)} …"
            )
        return checks

    def creation_turn(self, name: TopicName, policies: Policies) -> AbstractAsyncContextManager[None]:
        """Return the turn of the topic's creation among those that are counted: `prepare_creation`, and the creation,
        are in it. `policies`: its namespace's."""
        return self.topic_limit.turn(name, policies)

    async def resolve_partitions(self, name: TopicName, create: bool) -> int:
        """Return the number of partitions; 0: the topic is not partitioned, and does not exist yet if `create` allows
        that. Raises TOPIC_NOT_FOUND.
        """
        there, policies = await self._find_topic(name)
        if there is not None:
            return there
        partitions = self._check_auto_creation(name, policies, create)
        if partitions:
            await _ignore_exists(lambda: self.partitioned.create(name, partitions, {}))
            return (await self.partitioned.get(name)).partitions
        return 0

    async def check_lookup(self, name: TopicName) -> None:
        """Raise `BrokerError` unless the topic exists, or a client's first use would create it."""
        there, policies = await self._find_topic(name)
        if there is None:
            self._check_auto_creation(name, policies, True)

    async def _find_topic(self, name: TopicName) -> tuple[int | None, Policies]:
        """Return the number of partitions, None if there is no such topic, and the namespace's policies."""
        namespace = await self.get_namespace(name.namespace_name)
        try:
            there = await self._count_partitions(name, namespace.node)
        except BrokerError as error:
            if error.code not in (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_ALLOWED):
                raise
            there = None
        if there is None:
            namespace = await self.get_namespace(name.namespace_name, fresh=True)
            there = await self._count_partitions(name, namespace.node)
        return there, namespace.node.policies

    def _check_auto_creation(self, name: TopicName, policies: Policies, create: bool) -> int:
        """Return the number of partitions with which first use creates the topic; 0: without any. Raises
        TOPIC_NOT_FOUND."""
        allowed, partitions = self._get_auto_creation(policies)
        if is_system_topic(name):
            return 0
        if not (create and allowed):
            reason = "allow_auto_topic_creation is off" if create else "this request does not create topics"
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {name}: create it first ({reason})")
        return partitions

    async def expand_partitions(self, name: TopicName) -> list[TopicName]:
        """Return the topic's partitions, or the topic itself if it has none. Raises TOPIC_NOT_FOUND."""
        partitions = await self.resolve_partitions(name, create=False)
        return [name.partition(index) for index in range(partitions)] if partitions else [name]

    async def _count_partitions(self, name: TopicName, namespace: NamespaceNode) -> int | None:
        """Return the number of partitions; None: there is no such topic. Raises `BrokerError` if there can't be."""
        require_active(name.namespace_name, namespace)
        if name.is_partition:
            await self._check_partition(name)
            return 0
        found, stored = await asyncio.gather(self.partitioned.find(name), self._nodes.exists(paths.topic(name)))
        if found is not None:
            if found.node.deletion != Deletion.DELETION_NONE:
                raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"partitioned topic {name} is being deleted")
            return found.node.partitions
        return 0 if stored else None

    async def get_topic_state(self, name: TopicName) -> TopicState | None:
        """Return the state of the topic's log; None: it does not exist."""
        found = await self._nodes.read(ManagedLedgerNode, paths.topic(name), fresh=True)
        return found.node.state if found else None

    async def find_topic_node(self, name: TopicName) -> ManagedLedgerNode | None:
        """Return the node of the topic's log, by a read that may be stale; None: there is none."""
        found = await self._nodes.read(ManagedLedgerNode, paths.topic(name))
        return found.node if found else None

    async def find_cursor_node(self, name: TopicName, subscription: str) -> CursorNode | None:
        """Return the node of a subscription's cursor, by a read that may be stale; None: there is none."""
        found = await self._nodes.read(CursorNode, paths.cursor(name, subscription))
        return found.node if found else None

    async def get_topic_properties(self, name: TopicName) -> dict[str, str]:
        """Return the properties of a topic or partitioned topic. Raises TOPIC_NOT_FOUND."""
        if await self.resolve_partitions(name, create=False):
            return dict((await self.partitioned.get(name)).properties)
        stored = await self._nodes.read(ManagedLedgerNode, paths.topic(name), fresh=True)
        # A partition that was never used has none.
        return {} if stored is None else decode_properties(stored.node.properties)

    async def has_stored_topic(self, name: TopicName) -> bool:
        """Return whether the topic is stored, by a read that may be stale."""
        return await self._nodes.exists(paths.topic(name))

    @property
    def has_topic_policies(self) -> bool:
        return self.settings.topic_level_policies_enabled and self.settings.system_topic_enabled

    async def find_incarnation(self, name: TopicName) -> str:
        """Return the incarnation of a topic, or of a partitioned topic, read afresh. Raises TOPIC_NOT_FOUND."""
        await self._nodes.sync()
        partitioned = await self.partitioned.find(name)
        if partitioned is not None and partitioned.node.deletion == Deletion.DELETION_NONE:
            return partitioned.node.incarnation.hex()
        stored = await self._nodes.read(ManagedLedgerNode, paths.topic(name), fresh=False)
        if partitioned is not None or stored is None or stored.node.state != TopicState.LIVE:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {name}")
        return stored.node.incarnation

    async def sync(self) -> None:
        """Make later reads return everything that was written before this call."""
        await self._nodes.sync()

    async def list_topics(
        self,
        namespace: NamespaceName,
        *,
        include_system: bool = False,
        domains: Iterable[TopicDomain] = tuple(TopicDomain),
    ) -> list[str]:
        """Return the full names of all stored topics of the namespace, partitions among them, in order."""
        names = []
        for domain in domains:
            names += await self._list_names(paths.TOPICS, namespace, domain, include_system)
        return sorted(names)

    async def list_partitioned_topics(
        self,
        namespace: NamespaceName,
        *,
        include_system: bool = False,
        domains: Iterable[TopicDomain] = tuple(TopicDomain),
    ) -> list[str]:
        names = []
        for domain in domains:
            names += await self._list_names(paths.PARTITIONED, namespace, domain, include_system)
        return sorted(names)

    async def delete_tenant(
        self,
        tenant: str,
        delete_topics: Callable[[NamespaceName], Awaitable[None]] | None,
        release: Callable[[NamespaceName], Awaitable[None]] | None = None,
    ) -> None:
        """Delete the tenant. `delete_topics` and `release`: see `delete_namespace`, for each namespace by force."""
        if tenant in [name.tenant for name in _BUILT_IN]:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"tenant {tenant} exists in every cluster, and can't be deleted")

        async def delete_namespace(name: NamespaceName) -> None:
            await _ignore_not_found(lambda: self.delete_namespace(name, delete_topics, release))

        await self.tenants.delete(tenant, delete_namespace if delete_topics else None)

    async def delete_namespace(
        self,
        name: NamespaceName,
        delete_topics: Callable[[NamespaceName], Awaitable[None]] | None,
        release: Callable[[NamespaceName], Awaitable[None]] | None = None,
        *,
        delete_system_topics: Callable[[NamespaceName], Awaitable[None]] | None = None,
    ) -> None:
        """Delete the namespace: see `Namespaces.delete`."""
        if name in _BUILT_IN:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"namespace {name} exists in every cluster, and can't be deleted")
        self._cache.pop(name, None)
        await self.namespaces.delete(
            name, self._list_everything, delete_topics, release, delete_system_topics=delete_system_topics
        )

    async def update_policies(self, name: NamespaceName, policies: Policies) -> None:
        await self.namespaces.update(name, policies)
        self._cache.pop(name, None)

    async def change_policies(self, name: NamespaceName, new: Policies, removed: Sequence[str]) -> None:
        await self.namespaces.change_policies(name, new, removed)
        self._cache.pop(name, None)

    async def change_properties(
        self, name: NamespaceName, new: Mapping[str, str], removed: Sequence[str], *, all_others: bool = False
    ) -> dict[str, str]:
        old = await self.namespaces.change_properties(name, new, removed, all_others=all_others)
        self._cache.pop(name, None)
        return old

    async def _list_everything(self, namespace: NamespaceName) -> list[TopicName]:
        await self._nodes.sync()
        names = await self.list_topics(namespace, include_system=True)
        names += await self.list_partitioned_topics(namespace, include_system=True)
        return [TopicName.parse(name) for name in names]

    def _get_auto_creation(self, policies: Policies) -> tuple[bool, int]:
        """Return whether topics are created on first use, and with how many partitions."""
        if policies.HasField("auto_topic_creation"):
            return policies.auto_topic_creation.allowed, policies.auto_topic_creation.partitions
        partitioned = self.settings.allow_auto_topic_creation_type == "partitioned"
        return self.settings.allow_auto_topic_creation, self.settings.default_num_partitions if partitioned else 0

    async def _check_partition(self, name: TopicName) -> int:
        """Return the version of the partitioned topic. Raises TOPIC_NOT_FOUND if it does not have this partition."""
        found = await self.partitioned.find(name.base)
        if found is not None and found.node.has_no_partitions and found.node.deletion == Deletion.DELETION_NONE:
            await self.partitioned.allow_partitions(name.base)
            found = await self.partitioned.find(name.base, fresh=True)
        if found is None:
            raise BrokerError(
                ErrorCode.TOPIC_NOT_FOUND,
                f"{name} has the name of a partition, and there is no partitioned topic {name.base}",
            )
        node = found.node
        if node.deletion != Deletion.DELETION_NONE:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"{name.base}, the topic of {name}, is being deleted")
        if name.partition_index >= max(node.partitions, node.growing_to):
            raise BrokerError(
                ErrorCode.TOPIC_NOT_FOUND, f"{name.base} has {node.partitions:,} partitions, and no {name}"
            )
        return found.version

    async def _list_names(
        self, root: str, namespace: NamespaceName, domain: TopicDomain, include_system: bool
    ) -> list[str]:
        names = []
        shown = include_system or namespace != SYSTEM_NAMESPACE
        for encoded in await self._nodes.list_children(paths.folder(root, namespace, domain)):
            if _UNENCODED.fullmatch(encoded):  # nearly all do, and there may be very many names
                if shown and (include_system or not is_system_name(encoded)):
                    names.append(f"{domain}://{namespace}/{encoded}")
                continue
            try:
                name = TopicName.from_path(domain, namespace.tenant, namespace.namespace, encoded)
            except InvalidTopicName:
                continue  # it is no topic: somebody else created the node
            if include_system or not is_system_topic(name):
                names.append(str(name))
        return names


async def _ignore_exists(create: Callable[[], Awaitable[None]]) -> None:
    try:
        await create()
    except BrokerError as error:
        if error.code != ErrorCode.ALREADY_EXISTS:
            raise


async def _ignore_not_found(delete: Callable[[], Awaitable[None]]) -> None:
    try:
        await delete()
    except BrokerError as error:
        if error.code != ErrorCode.NOT_FOUND:
            raise
