"""Registries of several brokers on honest bookies and one metadata store in memory, and topics for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerState
from magnetar_broker import paths
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.topic_node import NewTopic, TopicNode
from magnetar_broker.schemas.schema_registry import SchemaRegistry
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics.topic_deletion import delete_topic
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import Change, ChangeResult, MetadataStore, Node, Stat
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies, SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema, SchemaNode, SchemaType
from magnetar_testing.metadata import MemoryStore
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.topic_name import TopicName
from tests.unit.bookie.patience import passing_time
from tests.unit.bookie.small_cluster import SmallCluster, running_small_cluster
from tests.unit.broker.admin.catalog_scene import KilledStore

__all__ = ["FULL", "PARTITIONED", "TOPIC", "PausedStore", "RegistryScene", "running_registry_scene", "schema"]

TOPIC = TopicName.parse("persistent://public/default/orders")
PARTITIONED = TopicName.parse("persistent://public/default/parts")
FULL = SchemaRules(SchemaCompatibility.FULL, allow_auto_update=True, validation_enforced=False)


def schema(field: str = "a", padding: int = 0) -> Schema:
    """Return a schema of records with this field. `unfit…` has no default value, and so fits no other one."""
    default = {} if field.startswith("unfit") else {"default": 0}
    definition = {"type": "record", "name": "Order", "fields": [{"name": field, "type": "int", **default}]}
    return Schema(
        type=SchemaType.AVRO,
        name="Order",
        definition=json.dumps(definition).encode(),
        properties={"padding": "." * padding} if padding else {},
    )


async def _no_partitions(names: object) -> None: ...


class PausedStore(KilledStore):
    """A session of a process that is paused before one of its requests, counted after some changes."""

    def __init__(self, store: MemoryStore, requests: int, changes: int) -> None:
        super().__init__(store, changes=1_000_000, made=False)
        self._changes = changes
        self._requests = requests
        self.is_paused = False
        self.continues = asyncio.Event()

    async def wait_until_paused(self, work: asyncio.Future[Any]) -> None:
        """Return when the process is paused, or its work has ended."""
        while not self.is_paused and not work.done():
            await asyncio.sleep(0)

    async def _pass(self) -> None:
        self._requests -= self._changes <= 0
        if self._requests == -1:
            self.is_paused = True
            await self.continues.wait()

    async def transaction(self, changes: Sequence[Change]) -> list[ChangeResult]:
        await self._pass()
        results = await super().transaction(changes)
        self._changes -= 1
        return results

    async def get(self, path: str) -> Node | None:
        await self._pass()
        return await super().get(path)

    async def exists(self, path: str) -> Stat | None:
        await self._pass()
        return await super().exists(path)

    async def sync(self) -> None:
        await self._pass()
        await super().sync()


class RegistryScene:
    def __init__(self, cluster: SmallCluster) -> None:
        self.cluster = cluster
        self.clock = cluster.clock
        self.policies = Policies()
        self._brokers = 0
        self._registries: list[SchemaRegistry] = []

    async def start_broker(
        self, settings: BrokerServiceSettings | None = None, store: MetadataStore | None = None, **options: Any
    ) -> SchemaRegistry:
        """Return the registry of one more broker."""
        client = await self.client(store)
        settings, randomness = settings or BrokerServiceSettings(), self._randomness()
        registry = SchemaRegistry(client, self.clock, randomness, settings, self._find_policies, **options)
        self._registries.append(registry)
        return registry

    async def _find_policies(self, _: TopicName) -> Policies:
        return self.policies

    def killed_after(self, changes: int, *, made: bool) -> KilledStore:
        """Return the store of a broker that dies before, or right after, one of its changes."""
        return KilledStore(self.cluster.server.connect(), changes, made)

    async def delete_topic(self, name: TopicName = TOPIC, store: MetadataStore | None = None) -> None:
        """Delete the topic, partitioned or not, as another broker, and raise only `BrokerError`."""
        client = await self.client(store)
        randomness = self._randomness()
        try:
            if name != PARTITIONED:
                await delete_topic(name, client, self.clock, randomness)
                return
        except MetadataError as error:
            raise BrokerError(ErrorCode.METADATA_ERROR, str(error)) from error
        registry = SchemaRegistry(client, self.clock, randomness, BrokerServiceSettings(), self._find_policies)
        self._registries.append(registry)
        catalog = Catalog(client.ledgers.store, self.clock, randomness)
        await catalog.partitioned.delete(name, _no_partitions, registry.prepare_topic_deletion)

    async def create(self, name: TopicName) -> None:
        """Create the topic, partitioned or not."""
        if name == PARTITIONED:
            catalog = self.catalog()
            await catalog.bootstrap()
            await catalog.partitioned.create(name, 2, {})
        else:
            await self.create_topic(name)

    async def schema_paths(self) -> list[str]:
        """Return the paths of all schema nodes and of those below them."""
        store = self.cluster.server.connect()
        folder = paths.SCHEMAS + "/public/default/persistent"
        topics = [f"{folder}/{name}" for name in await store.children(folder)]
        return topics + [f"{topic}/{name}" for topic in topics for name in await store.children(topic)]

    async def client(self, store: MetadataStore | None = None) -> LedgerClient:
        client = LedgerClient(
            store or self.cluster.server.connect(),
            self.cluster.transport,
            self.clock,
            self._randomness(),
            self.cluster.settings,
        )
        self.cluster.clients.append(client)
        await client.start()
        return client

    def _randomness(self) -> SeededRandomness:
        self._brokers += 1
        return SeededRandomness(f"broker {self._brokers}")

    async def create_topic(self, name: TopicName = TOPIC) -> TopicNode:
        node = TopicNode(name, self.cluster.client, self.clock, self._randomness())
        await node.claim(NewTopic())
        return node

    def catalog(self) -> Catalog:
        return Catalog(self.cluster.server.connect(), self.clock, self._randomness())

    async def node(self, name: TopicName = TOPIC) -> SchemaNode | None:
        stored = await compare_and_set.read(self.cluster.server.connect(), paths.schema(name), fresh=True)
        return None if stored is None else SchemaNode.FromString(stored.payload)

    async def ledgers(self) -> set[int]:
        """Return the ledgers that are not deleted, and are claimed."""
        ledgers = self.cluster.client.ledgers
        await ledgers.store.sync()
        intents = await ledgers.list_ledger_ids("/ledger-intents")
        every = [ledger_id async for ledger_id in ledgers.ledger_ids()]
        states = {ledger_id: (await ledgers.read_metadata(ledger_id)).state for ledger_id in every}
        return {one for one, state in states.items() if state is not LedgerState.TOMBSTONE and one not in intents}

    async def close(self) -> None:
        for registry in self._registries:
            await registry.close()


@asynccontextmanager
async def running_registry_scene(*, topic: bool = True) -> AsyncIterator[RegistryScene]:
    async with running_small_cluster() as cluster, passing_time(cluster.clock):
        scene = RegistryScene(cluster)
        if topic:
            await scene.create_topic()
        yield scene
        await scene.close()
