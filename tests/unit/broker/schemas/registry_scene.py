"""Registries of several brokers on honest bookies and one metadata store in memory, and topics for them.

Definitions are any bytes: equal ones have the same fingerprint, and those with `unfit` fit no earlier ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerState
from magnetar_broker import paths
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_broker.schemas import compatibility, definitions
from magnetar_broker.schemas.schema_registry import SchemaRegistry
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_metadata import compare_and_set
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema, SchemaNode, SchemaType
from magnetar_testing.metadata import MemoryStore
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.topic_name import TopicName
from tests.unit.bookie.patience import passing_time
from tests.unit.bookie.small_cluster import SmallCluster, running_small_cluster

__all__ = ["FULL", "PARTITIONED", "TOPIC", "RegistryScene", "running_registry_scene", "schema", "use_simple_rules"]

TOPIC = TopicName.parse("persistent://public/default/orders")
PARTITIONED = TopicName.parse("persistent://public/default/parts")
FULL = SchemaRules(SchemaCompatibility.FULL, allow_auto_update=True, validation_enforced=False)


def schema(definition: bytes = b"a") -> Schema:
    return Schema(type=SchemaType.AVRO, name="Order", definition=definition)


def use_simple_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(new: Schema, earlier: Sequence[tuple[int, Schema]], strategy: SchemaCompatibility) -> None:
        if earlier and b"unfit" in new.definition:
            raise BrokerError(ErrorCode.INCOMPATIBLE_SCHEMA, f"does not fit version {earlier[-1][0]}", "schema")

    monkeypatch.setattr(definitions, "check_definition", lambda _: None)
    monkeypatch.setattr(definitions, "fingerprint", lambda one: hashlib.sha256(one.definition).digest())
    monkeypatch.setattr(compatibility, "check_compatible", check)
    monkeypatch.setattr(compatibility, "check_readable", check)


class RegistryScene:
    def __init__(self, cluster: SmallCluster) -> None:
        self.cluster = cluster
        self.clock = cluster.clock
        self._brokers = 0
        self._registries: list[SchemaRegistry] = []

    async def start_broker(
        self, settings: BrokerServiceSettings | None = None, store: MemoryStore | None = None
    ) -> SchemaRegistry:
        """Return the registry of one more broker."""
        client = await self.client(store)
        registry = SchemaRegistry(client, self.clock, self._randomness(), settings or BrokerServiceSettings())
        self._registries.append(registry)
        return registry

    async def client(self, store: MemoryStore | None = None) -> LedgerClient:
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
        await node.claim(create=True)
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
async def running_registry_scene(
    monkeypatch: pytest.MonkeyPatch, *, topic: bool = True
) -> AsyncIterator[RegistryScene]:
    use_simple_rules(monkeypatch)
    async with running_small_cluster() as cluster, passing_time(cluster.clock):
        scene = RegistryScene(cluster)
        if topic:
            await scene.create_topic()
        yield scene
        await scene.close()
