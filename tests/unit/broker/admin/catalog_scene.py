"""Catalogs of several brokers on one metadata server, and processes that die at a chosen change."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from magnetar_broker import paths
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_metadata.compare_and_set import change, encode_first_value
from magnetar_metadata.errors import MetadataError, Refused, SessionLost
from magnetar_metadata.store import Change, ChangeResult, MetadataStore, Node, Session, Stat, Watch
from magnetar_protos.admin_pb2 import TenantSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import MemoryServer, MemoryStore
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.topic_name import NamespaceName, TopicName

NAMESPACE = NamespaceName("acme", "shop")


class Killed(SessionLost):
    """The process died: none of its code runs on."""


class KilledStore(MetadataStore):
    """A session of a process that dies before, or right after, one of its changes."""

    def __init__(self, store: MemoryStore, changes: int, made: bool) -> None:
        self._store = store
        self._left = changes
        self._made = made
        self.died = False

    async def transaction(self, changes: Sequence[Change]) -> list[ChangeResult]:
        if self._left == 0:
            self.died = True
            if self._made:
                await self._store.transaction(changes)
            self._made = False
            raise Killed("killed")
        self._left -= 1
        return await self._store.transaction(changes)

    def _alive(self) -> MemoryStore:
        if self.died:
            raise Killed("killed")
        return self._store

    @property
    def session(self) -> Session:
        return self._store.session

    async def get(self, path: str) -> Node | None:
        return await self._alive().get(path)

    async def exists(self, path: str) -> Stat | None:
        return await self._alive().exists(path)

    async def children(self, path: str) -> list[str]:
        return await self._alive().children(path)

    async def sync(self) -> None:
        await self._alive().sync()

    async def ping(self) -> None:
        await self._alive().ping()

    def watch(self, path: str) -> Watch:
        return self._store.watch(path)

    def watch_subtree(self, root: str) -> Watch:
        return self._store.watch_subtree(root)

    async def close(self) -> None:
        await self._store.close()


class CatalogScene:
    def __init__(self, options: CatalogSettings | None = None) -> None:
        self.clock = ManualClock()
        self.server = MemoryServer(self.clock)
        self.store = self.server.connect()
        self._options = options
        self._seed = 0
        self.catalog = self.another()

    def another(self, store: MetadataStore | None = None) -> Catalog:
        """Another broker's."""
        self._seed += 1
        randomness = SeededRandomness(self._seed)
        return Catalog(store or self.server.connect(), self.clock, randomness, self._options)

    def killed_after(self, changes: int, *, made: bool) -> tuple[Catalog, KilledStore]:
        store = KilledStore(self.server.connect(), changes, made)
        return self.another(store), store

    async def start(self) -> None:
        """Make a tenant and a namespace."""
        await self.catalog.bootstrap()
        await self.catalog.tenants.create(NAMESPACE.tenant, TenantSettings())
        await self.catalog.namespaces.create(NAMESPACE, Policies())

    async def make_topic(self, name: TopicName, catalog: Catalog | None = None, *, explicit: bool = False) -> None:
        """As the managed ledger makes it, with what the catalog wants to hold."""
        along = await (catalog or self.catalog).prepare_creation(name, explicit=explicit)
        await self.put_topic(name, along)

    async def put_topic(self, name: TopicName, along: Sequence[Change]) -> None:
        try:
            await change(
                self.store,
                paths.topic(name),
                lambda _: b"topic",
                clock=self.clock,
                randomness=SeededRandomness(9),
                along=along,
            )
        except Refused as error:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"changed in the meantime: {error}") from error

    async def delete_topic(self, name: TopicName) -> None:
        node = await self.store.get(paths.topic(name))
        if node is not None:
            await self.store.delete(paths.topic(name), node.version)

    async def delete_topics(self, names: Sequence[TopicName]) -> None:
        for name in names:
            await self.delete_topic(name)

    async def delete_all(self, catalog: Catalog, namespace: NamespaceName) -> None:
        for text in await catalog.list_partitioned_topics(namespace, include_system=True):
            await catalog.partitioned.delete(TopicName.parse(text), self.delete_topics, no_schema)
        for text in await catalog.list_topics(namespace, include_system=True):
            await self.delete_topic(TopicName.parse(text))


async def no_schema(name: TopicName, is_being_deleted: object) -> list[Change]:
    """Delete nothing: the topic has no schema."""
    return []


def foreign(payload: bytes) -> bytes:
    return encode_first_value(payload, SeededRandomness(7))


async def code_of(awaitable: Awaitable[Any]) -> ErrorCode | None:
    """Why it was refused; None: it was not."""
    try:
        await awaitable
    except BrokerError as error:
        return error.code
    return None


__all__ = ["NAMESPACE", "CatalogScene", "KilledStore", "MetadataError", "code_of", "foreign", "no_schema"]
