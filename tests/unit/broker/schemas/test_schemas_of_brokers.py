"""Schemas at whole brokers: deleted with namespaces and tenants, and with topics that nobody uses."""

from __future__ import annotations

import pytest

from magnetar_bookie.ledger.ledger_metadata import LedgerState
from magnetar_broker import paths
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.broker_scene import BrokerScene, running_broker
from tests.unit.broker.schemas.registry_scene import FULL, schema

PLAIN, PARTITIONED = TopicName.parse("acme/shop/plain"), TopicName.parse("acme/shop/parts")


async def _register_all(scene: BrokerScene) -> list[int]:
    """Create two topics with schemas, one of them partitioned. Return the ledgers of the schemas."""
    await scene.admin.tenants.create("acme")
    await scene.admin.namespaces.create("acme/shop")
    await scene.admin.topics.create(str(PLAIN))
    await scene.admin.topics.create_partitioned(str(PARTITIONED), 2)
    schemas = scene.broker_session.schemas
    ledgers = []
    for name in (PLAIN, PARTITIONED):
        for field in ("a", "b"):
            await schemas.register(name, schema(field), FULL)
        ledgers += [version.ledger_id for version in await schemas.describe(name)]
    return ledgers


async def _check_all_deleted(scene: BrokerScene, ledgers: list[int]) -> None:
    store = scene.broker_session.store
    assert await store.children(f"{paths.SCHEMAS}/acme/shop/persistent") == []
    for ledger_id in ledgers:
        metadata = await scene.broker_session.client.ledgers.read_metadata(ledger_id)
        assert metadata.state is LedgerState.TOMBSTONE


@pytest.mark.parametrize("deleted", ["topics", "namespace", "tenant"])
async def test_what_is_deleted_by_force_takes_its_schemas_with_it(deleted: str) -> None:
    """SCH-1, TOP-3"""
    async with running_broker() as scene:
        ledgers = await _register_all(scene)
        assert len(ledgers) == 4
        if deleted == "topics":
            await scene.admin.topics.delete(str(PLAIN))
            await scene.admin.topics.delete_partitioned(str(PARTITIONED))
        elif deleted == "namespace":
            await scene.admin.namespaces.delete("acme/shop", force=True)
        else:
            await scene.admin.tenants.delete("acme", force=True)
        await _check_all_deleted(scene, ledgers)
