"""Leases as readers past the broker ask for them: with plans, by `renew_lease`, and over the end of a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from magnetar import exceptions
from magnetar.admin import AsyncAdmin, MessagePosition
from magnetar_bookie.errors import NoSuchLedger
from magnetar_bookie.ledger.ledger_metadata import LedgerState
from magnetar_bookie.ledger.ledger_metadata_store import LedgerMetadataStore
from magnetar_broker import paths
from magnetar_broker.managed_ledger.topic_node import decode_topic
from magnetar_metadata import compare_and_set
from magnetar_wire.randomness import SystemRandomness
from tests.unit.broker.admin.many_brokers import admins, serving, spread, topic_at
from tests.unit.broker.admin.many_brokers import publish as publish_at
from tests.unit.broker.broker_scene import URL, BrokerScene, running_broker
from tests.unit.broker.cluster_scene import running_brokers

_OPTIONS: dict[str, Any] = {
    "managed_ledger_max_entries_per_ledger": 3,
    "managed_ledger_min_ledger_rollover_time_minutes": 0,
    "default_retention_without_subscription_minutes": 0,
    "topic_housekeeping_interval_seconds": 0.02,
    "managed_ledger_lease_sweep_interval_seconds": 0.05,
}
_HOUR_MS, _SECOND_MS = 3_600_000, 1000
ONE, OTHER = bytes([1]) * 16, bytes([2]) * 16
_BEGIN = MessagePosition(0, 0, 0)


async def publish(scene: BrokerScene, topic: str, count: int) -> None:
    async with scene.client() as client:
        producer = await client.create_producer(topic, batching_enabled=False)
        for number in range(count):
            await producer.send(b"%d" % number)


async def ledgers(scene: BrokerScene, topic: str) -> list[int]:
    return [one.ledger_id for one in (await scene.admin.topics.internal_stats(topic)).ledgers]


async def test_the_topics_owner_removes_a_lease_that_has_lapsed_and_counts_it() -> None:
    """SPK-5: nobody renews it, and nothing else happens to the topic."""

    async def _counted(scene: BrokerScene) -> bool:
        return scene.broker.counters.leases_lapsed == 1

    async with running_broker(**_OPTIONS) as scene:
        await publish(scene, "t", 1)
        await scene.admin.reading.plan("t", start=_BEGIN, lease_ms=_SECOND_MS, lease_id=ONE, holder="a query")
        [topic] = scene.broker_session.topics.loaded()
        [lease] = (await scene.admin.topics.internal_stats("t")).leases
        assert lease.holder == "a query"

        async def removed() -> bool:
            stored = await compare_and_set.read(scene.broker_session.client.ledgers.store, paths.topic(topic.name))
            assert stored is not None
            return not decode_topic("", stored.payload).leases

        await until(removed)
        await until(lambda: _counted(scene))
        stats = await scene.admin.topics.internal_stats("t")
        assert (stats.leases, stats.lapsed_leases) == ([], 1)


async def until(condition: Callable[[], object]) -> None:
    """Within the test's own bound."""
    while not await condition():  # type: ignore[misc]
        await asyncio.sleep(0.01)


async def leased(scene: BrokerScene, topic: str, lease_ms: int, lease_id: bytes = ONE) -> list[int]:
    """Has a topic of several ledgers with a lease on all of them; those."""
    await publish(scene, topic, 1)
    plan = await scene.admin.reading.plan(topic, start=_BEGIN, lease_ms=lease_ms, lease_id=lease_id, holder="a query")
    assert plan.lease_until_ms > 0
    await publish(scene, topic, 9)
    found = await ledgers(scene, topic)
    assert len(found) >= 3
    return found


async def living(scene: BrokerScene, ledger_ids: Sequence[int]) -> list[int]:
    store = LedgerMetadataStore(scene.metadata.connect(), scene.clock, SystemRandomness())
    found = []
    for ledger_id in ledger_ids:
        try:
            if (await store.read_metadata(ledger_id, fresh=True)).state is not LedgerState.TOMBSTONE:
                found.append(ledger_id)
        except NoSuchLedger:
            pass
    return found


async def test_a_planned_range_stays_until_its_lease_is_ended() -> None:
    """SPK-5, RET-1: over unloads, too; why it is there still is shown, and it goes when nobody needs it."""

    async with running_broker(**_OPTIONS) as scene:
        all_ledgers = await leased(scene, "logs", _HOUR_MS)
        incarnation = (await scene.admin.reading.plan("logs", start=_BEGIN)).incarnation
        await scene.admin.topics.unload("logs")
        stats = await scene.admin.topics.internal_stats("logs")
        [lease] = stats.leases
        assert (lease.holder, lease.from_ledger_id, lease.lease_ms) == ("a query", all_ledgers[0], _HOUR_MS)
        assert 0 < lease.left_ms <= _HOUR_MS
        await scene.admin.reading.renew_lease("logs", incarnation, ONE, _HOUR_MS)
        await publish(scene, "logs", 1)  # another ledger: housekeeping has been by
        assert (await ledgers(scene, "logs"))[: len(all_ledgers) - 1] == all_ledgers[:-1]
        with pytest.raises(exceptions.NotFound, match=OTHER.hex()):
            await scene.admin.reading.renew_lease("logs", incarnation, OTHER, _HOUR_MS)
        with pytest.raises(exceptions.InvalidArgument, match="managed_ledger_max_lease_minutes"):
            await scene.admin.reading.renew_lease("logs", incarnation, ONE, 25 * _HOUR_MS)
        await scene.admin.reading.renew_lease("logs", incarnation, ONE, 0)
        assert not (await scene.admin.topics.internal_stats("logs")).leases

        async def is_deleted() -> bool:
            return not await living(scene, all_ledgers[:-1])

        await until(is_deleted)


async def test_administrator_ends_a_lease_listed_in_topic_stats() -> None:
    """SPK-5: an administrator ends the lease of a dead reader, also at the maximum number of leases."""

    async with running_broker(managed_ledger_max_leases_per_topic=1, **_OPTIONS) as scene:
        await leased(scene, "logs", _HOUR_MS)
        async with AsyncAdmin(URL, 1, transport=scene.transport) as hasty:
            with pytest.raises(exceptions.TooManyLookupRequestException, match="end-lease"):
                await hasty.reading.plan("logs", start=_BEGIN, lease_ms=_HOUR_MS, lease_id=OTHER)
        [lease] = (await scene.admin.topics.internal_stats("logs")).leases
        await scene.admin.reading.end_lease("logs", lease.lease_id)
        await scene.admin.reading.end_lease("logs", lease.lease_id)  # it has ended: nothing is done
        assert not (await scene.admin.topics.internal_stats("logs")).leases
        await scene.admin.reading.plan("logs", start=_BEGIN, lease_ms=_HOUR_MS, lease_id=OTHER)


@pytest.mark.parametrize("with_its_namespace", [False, True])
async def test_force_deleted_topic_retains_leased_ledgers(with_its_namespace: bool) -> None:
    """SPK-5, TOP-7: for the lease's full time; renewals are refused, and it is swept in the end."""

    async with running_broker(**_OPTIONS) as scene:
        await scene.admin.namespaces.create("public/short")
        retained = await leased(scene, "public/short/retained", _HOUR_MS)
        swept = await leased(scene, "public/short/swept", _SECOND_MS)
        incarnation = (await scene.admin.reading.plan("public/short/retained", start=_BEGIN)).incarnation
        if with_its_namespace:
            await scene.admin.namespaces.delete("public/short", force=True)
        else:
            for topic in ("retained", "swept"):
                await scene.admin.topics.delete(f"public/short/{topic}", force=True)
        expected = exceptions.NotFound if with_its_namespace else exceptions.TopicNotFound
        with pytest.raises(expected):
            await scene.admin.reading.renew_lease("public/short/retained", incarnation, ONE, _HOUR_MS)
        if not with_its_namespace:
            await publish(scene, "public/short/retained", 1)
            with pytest.raises(exceptions.IncarnationChanged):
                await scene.admin.reading.renew_lease("public/short/retained", incarnation, ONE, _HOUR_MS)

        async def none_living() -> bool:
            return not await living(scene, swept)

        await until(none_living)
        assert await living(scene, retained) == retained
        store = scene.metadata.connect()

        async def one_left() -> bool:
            return len(await store.children(paths.LEASED_LEDGERS)) == 1

        await until(one_left)


async def test_a_lease_outlives_its_brokers_and_is_renewed_by_way_of_any() -> None:
    """SPK-5: the next owner retains the planned ledgers, and renews leases that another broker has granted."""

    async with running_brokers(**_OPTIONS) as scene, admins(scene) as at:
        await spread(scene, at[0])
        topic = topic_at(scene, scene["b1"])
        async with scene.client() as client:
            await publish_at(client, topic, b"0")
            plan = await at[1].reading.plan(topic, start=_BEGIN, lease_ms=_HOUR_MS, lease_id=ONE, holder="a query")
            for number in range(1, 10):
                await publish_at(client, topic, b"%d" % number)
            for _ in range(3):
                [serves] = serving(scene, topic)
                scene.metadata.expire(scene[serves].session)
                await publish_at(client, topic, b"more")
                await at[1].reading.renew_lease(topic, plan.incarnation, ONE, _HOUR_MS)
                [lease] = (await at[1].topics.internal_stats(topic)).leases
                assert lease.left_ms > _HOUR_MS / 2
                again = await at[1].reading.plan(topic, incarnation=plan.incarnation, start=_BEGIN)
                assert not again.begins_in_deleted
                assert again.first == plan.first
            await at[1].reading.renew_lease(topic, plan.incarnation, ONE, 0)

            async def trimmed() -> bool:
                return (await at[1].reading.plan(topic, start=_BEGIN)).first > again.stop

            await publish_at(client, topic, *[b"%d" % number for number in range(4)])
            await until(trimmed)
