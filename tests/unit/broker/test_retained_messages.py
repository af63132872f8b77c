"""What topics keep, let expire and delete, for clients of both protocols: by default, by policies, on a full disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from magnetar import ConsumerType, InitialPosition
from magnetar.admin import NamespacePolicies, Retention, TopicPolicies
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.garbage_collector import GarbageCollector
from magnetar_broker.topics import policy_refresh
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from tests.running import until
from tests.sim.disk import SimulatedDisk
from tests.unit.bookie.bookie_client import NO_LATENCY
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene
from tests.unit.broker.rate_scene import LISTENERS, Publisher, RateScene, connected, running

# Ledgers of five entries.
_SMALL: Final[dict[str, Any]] = {
    "managed_ledger_max_entries_per_ledger": 5,
    "managed_ledger_min_ledger_rollover_time_minutes": 0,
    "managed_ledger_default_mark_delete_rate_limit": 1000,
}
_MINUTE_S: Final = 60
_DAY_S: Final = 86_400
pytestmark = pytest.mark.parametrize("listener", LISTENERS)


@pytest.fixture(autouse=True)
def _refreshes_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_refresh, "MIN_INTERVAL_S", 0.02)


@pytest.fixture
def pass_seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the broker's clock ahead: by all that was passed."""
    time_ms, passed = SystemClock.time_ms, 0

    def pass_seconds(seconds: int) -> None:
        nonlocal passed
        passed += seconds
        monkeypatch.setattr(SystemClock, "time_ms", lambda clock: time_ms(clock) + passed * 1000)

    return pass_seconds


async def _publish(scene: RateScene, count: int, topic: str = "t") -> Publisher:
    """Publish entries. By their clients' clocks they are from 1970."""
    publisher = await scene.open(topic)
    await publisher.publish(count)
    await scene.settle([publisher], lambda stored: stored == [count])
    return publisher


async def _acknowledge(scene: RateScene, consumer: Any, count: int) -> None:
    """Receive as many messages, and acknowledge them, durably."""
    if isinstance(scene.client, PulsarClient):
        last = (await scene.client.wait_delivered(count, consumer))[count - 1]
        message_id = MessageIdData(ledgerId=last.ledger_id, entryId=last.entry_id)
        await scene.client.acknowledge(consumer, [message_id], cumulative=True)
        return
    for _ in range(count):
        message = await consumer.receive()
    await consumer.acknowledge_cumulative(message, receipt=True)


async def _subscribe_at_the_end(scene: RateScene, topic: str) -> None:
    if isinstance(scene.client, PulsarClient):
        await scene.client.subscribe(99, topic, "late", initial_position=0)
        return
    async with scene.broker.client() as client:
        await client.subscribe(topic, "late", ConsumerType.Exclusive, initial_position=InitialPosition.Latest)


async def _count_left(scene: RateScene, topic: str = "t") -> int:
    """Trim the topic, as housekeeping does. Return how many entries are left."""
    loaded = scene.topic(topic)
    await loaded.log.trim(loaded.cursors.find_slowest_position)
    return loaded.log.stats().stored_entries


async def test_what_is_not_acknowledged_stays_and_the_rest_is_deleted(
    listener: str, pass_seconds: Callable[[int], None]
) -> None:
    """RET-1: of a topic with durable subscriptions. Without one everything stays for 7 days, also after a first
    subscription is made."""
    async with running(listener, **_SMALL) as scene:
        await scene.broker.admin.topics.create("read")
        fast, slow = await scene.consume("fast", "read"), await scene.consume("slow", "read")
        for topic in ("read", "unread", "read late"):
            await _publish(scene, 12, topic)
        await _acknowledge(scene, fast, 12)
        assert await _count_left(scene, "read") == 12
        await _acknowledge(scene, slow, 7)
        assert await _count_left(scene, "read") == 7, "ledgers go as a whole"
        await _subscribe_at_the_end(scene, "read late")
        pass_seconds(7 * _DAY_S - _MINUTE_S)
        for topic in ("unread", "read late"):
            assert await _count_left(scene, topic) == 12
        pass_seconds(2 * _MINUTE_S)
        assert [await _count_left(scene, topic) for topic in ("unread", "read late", "read")] == [2, 2, 7]


async def test_pulsars_way_deletes_closed_ledgers_at_once(listener: str) -> None:
    """RET-1: 0 minutes, where nobody has a durable subscription."""
    async with running(listener, default_retention_without_subscription_minutes=0, **_SMALL) as scene:
        await _publish(scene, 12)
        assert await _count_left(scene) == 2


@pytest.mark.parametrize("of_namespace", [True, False])
async def test_policies_keep_and_expire_by_the_brokers_time(
    listener: str, of_namespace: bool, pass_seconds: Callable[[int], None]
) -> None:
    """RET-2: of a namespace and of a topic. The clients' times, which are in the messages, count for nothing."""
    async with running(listener, **_SMALL) as scene:
        await _publish(scene, 12)
        consumer = await scene.consume()
        admin = scene.broker.admin
        policies: dict[str, Any] = {"retention": Retention(60, -1), "message_ttl_seconds": 100}
        if of_namespace:
            await admin.namespaces.change_policies("public/default", NamespacePolicies(**policies))
        else:
            await admin.topics.change_policies("t", TopicPolicies(**policies))
        await until(lambda: scene.topic().live_settings.current.ttl_duration_default_in_seconds == 100, "it applies")
        await _acknowledge(scene, consumer, 5)
        for seconds, left in ((95, 7), (10, 0)):
            pass_seconds(seconds)
            await scene.topic().message_expiry.run()
            [stats] = scene.topic().subscriptions.stats()
            assert stats.backlog_entries == left
        assert scene.counters().expired_entries == 7
        pass_seconds(58 * _MINUTE_S)
        assert await _count_left(scene) == 12
        pass_seconds(2 * _MINUTE_S)
        cursors, log = scene.topic().cursors, scene.topic().log
        await until(lambda: cursors.find_slowest_position() == log.last, "what has expired is saved")
        assert await _count_left(scene) <= 2, "the time of retention is over"


async def test_a_full_disk_can_still_delete_and_takes_messages_again(listener: str) -> None:
    """RET-3: of real bookies. Consumers read and acknowledge what they have, and their ledgers are deleted; then what
    waited is stored."""
    clock = SystemClock()
    disks = [SimulatedDisk(clock, SeededRandomness(number), NO_LATENCY) for number in range(2)]
    broker = PulsarScene(**_SMALL, topic_housekeeping_interval_seconds=0.02)
    bookies = [Bookie(f"b{number}", disk.open(), clock) for number, disk in enumerate(disks)]
    broker.bookies = bookies  # type: ignore[assignment]
    await broker.start()
    try:
        async with connected(listener, broker) as scene:
            consumer = await scene.consume()
            publisher = await _publish(scene, 12)
            for disk in disks:
                disk.fill()
            await publisher.publish(3)
            await until(lambda: "bookies" in scene.topic().log.waiting_for, "the disks are full")
            await _acknowledge(scene, consumer, 12)
            await until(lambda: len(scene.topic().log.stats().ledgers) <= 2, "what is acknowledged is deleted")
            assert publisher.stored == list(range(12))
            used = [disk.used_bytes for disk in disks]
            for bookie in bookies:
                await GarbageCollector(bookie, clock, SeededRandomness(1)).collect(broker.broker_session.client.ledgers)
            assert all(disk.used_bytes < before for disk, before in zip(disks, used, strict=True))
            await scene.settle([publisher], lambda stored: stored == [15])
            assert publisher.stored == list(range(15))
    finally:
        with suppress(TimeoutError):
            await broker.close()
        for bookie in bookies:
            await bookie.close()
