"""Leases on namespaces as readers take them from a broker, and what topics that come later keep by them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar import exceptions
from magnetar.admin import AsyncAdmin, MessagePosition, NamespaceLease
from magnetar_broker import paths
from magnetar_wire.topic_name import NamespaceName
from tests.unit.broker.broker_scene import URL, BrokerScene, running_broker

_OPTIONS: dict[str, Any] = {
    "managed_ledger_max_entries_per_ledger": 3,
    "managed_ledger_min_ledger_rollover_time_minutes": 0,
    "topic_housekeeping_interval_seconds": 0.02,
    "managed_ledger_lease_sweep_interval_seconds": 0.05,
}
_HOUR_MS = 3_600_000
_BEGIN = MessagePosition(0, 0, 0)
ONE, OTHER = bytes([1]) * 16, bytes([2]) * 16


async def publish(scene: BrokerScene, topic: str, count: int) -> None:
    """Into a topic of which somebody acknowledges all."""
    async with scene.client() as client:
        producer = await client.create_producer(topic, batching_enabled=False)
        consumer = await client.subscribe(topic, "acknowledges")
        for number in range(count):
            await producer.send(b"%d" % number)
            await consumer.acknowledge(await consumer.receive())


async def until(condition: Callable[[], Any]) -> None:
    """Within the test's own bound."""
    while not await condition():
        await asyncio.sleep(0.01)


async def test_namespace_lease_retains_messages_of_new_topics_and_partitions() -> None:
    """SPK-5, RET-1, TOP-3: of those with the prefix, though everything is acknowledged; until the lease is ended."""

    async with running_broker(**_OPTIONS) as scene:
        reading, topics = scene.admin.reading, scene.admin.topics
        await topics.create_partitioned("orders-a", 1)
        assert await reading.hold_namespace("public/default", "orders-", ONE, _HOUR_MS, holder="a query") is True
        assert await reading.hold_namespace("public/default", "orders-", ONE, _HOUR_MS, holder="a query") is False
        assert await reading.namespace_leases("public/default") == [NamespaceLease("orders-", ONE, _HOUR_MS, "a query")]
        await topics.update_partitioned("orders-a", 2)
        for topic in ("orders-b", "others", "orders-a-partition-1"):
            await publish(scene, topic, 10)

        async def trimmed() -> bool:
            return (await reading.plan("others", start=_BEGIN)).trimmed

        await until(trimmed)
        for topic in ("orders-b", "orders-a-partition-1"):
            plan = await reading.plan(topic, start=_BEGIN, lease_ms=_HOUR_MS, lease_id=ONE)
            assert (plan.messages, plan.trimmed) == (10, False)
            [lease] = (await topics.internal_stats(topic)).leases
            assert (lease.lease_id, lease.holder) == (ONE, "a query")
        await reading.end_namespace_lease("public/default", ONE)
        assert await reading.namespace_leases("public/default") == []
        await publish(scene, "orders-c", 1)
        assert not (await topics.internal_stats("orders-c")).leases
        await reading.end_lease("orders-b", ONE)

        async def trimmed_too() -> bool:
            return (await reading.plan("orders-b", start=_BEGIN)).trimmed

        await until(trimmed_too)
        await topics.truncate("others")
        plan = await reading.plan("others", start=_BEGIN)
        assert (plan.messages, plan.trimmed, plan.first) == (0, True, plan.end)


async def test_namespace_lease_requests_are_validated() -> None:
    """CHK-49, SPK-5"""

    async with running_broker(max_leases_per_namespace=1, **_OPTIONS) as scene:
        hold = scene.admin.reading.hold_namespace
        for namespace, prefix, lease_id, lease_ms, error in (
            ("public/nowhere", "", ONE, _HOUR_MS, exceptions.NotFound),
            ("public", "", ONE, _HOUR_MS, exceptions.InvalidArgument),
            ("public/default", "x" * 257, ONE, _HOUR_MS, exceptions.InvalidArgument),
            ("public/default", "", ONE[1:], _HOUR_MS, exceptions.InvalidArgument),
            ("public/default", "", ONE, 999, exceptions.InvalidArgument),
            ("public/default", "", ONE, 25 * _HOUR_MS, exceptions.InvalidArgument),
        ):
            with pytest.raises(error):
                await hold(namespace, prefix, lease_id, lease_ms)
        with pytest.raises(exceptions.InvalidArgument, match="holder has at most 256 bytes"):
            await hold("public/default", "", ONE, _HOUR_MS, holder="x" * 257)
        await hold("public/default", "", ONE, _HOUR_MS)
        async with AsyncAdmin(URL, 1, transport=scene.transport) as hasty:
            with pytest.raises(exceptions.TooManyLookupRequestException, match="max_leases_per_namespace"):
                await hasty.reading.hold_namespace("public/default", "", OTHER, _HOUR_MS)


async def test_abandoned_namespace_lease_lapses_and_is_removed() -> None:
    """SPK-5, CHK-58: its lease lapses and is counted; a namespace takes its node along when it is deleted."""

    async with running_broker(**_OPTIONS) as scene:
        await scene.admin.tenants.create("tenant")
        await scene.admin.namespaces.create("tenant/namespace")
        await scene.admin.reading.hold_namespace("tenant/namespace", "", ONE, 1000)

        async def removed() -> bool:
            return scene.broker.counters.namespace_leases_lapsed == 1

        await until(removed)
        assert await scene.admin.reading.namespace_leases("tenant/namespace") == []
        path = paths.namespace_leases(NamespaceName("tenant", "namespace"))
        store = scene.metadata.connect()
        assert await store.exists(path) is not None
        await scene.admin.namespaces.delete("tenant/namespace")
        assert await store.exists(path) is None
