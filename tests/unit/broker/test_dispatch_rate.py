"""The rates at which subscriptions get messages, over gRPC and over Pulsar's protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from magnetar import MessageId
from magnetar.admin import DispatchRate, NamespacePolicies, TopicPolicies
from magnetar_broker.topics import policy_refresh
from magnetar_broker.topics.dispatch import dispatch_rates
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.rate_scene import LISTENERS, RateScene, running


@pytest.fixture(autouse=True)
def _refreshes_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_refresh, "MIN_INTERVAL_S", 0.02)


async def _publish(scene: RateScene, count: int, topic: str = "t", **batch: Any) -> None:
    publisher = await scene.open(topic)
    await publisher.publish(count, **batch)
    await scene.settle([publisher], lambda stored: stored == [count])


async def _until_delivered(scene: RateScene, expected: Callable[[list[int]], bool], *names: str) -> None:
    await until(lambda: expected(scene.delivered(*names)), "the rate lets it pass")


@pytest.mark.parametrize("listener", LISTENERS)
async def test_dispatch_waits_for_the_rate_of_the_topic(listener: str) -> None:
    """RET-4: all subscriptions together, each of them gets its turns, and statistics name the rate."""
    async with running(listener, dispatch_throttling_rate_per_topic_in_msg=10) as scene:
        await _publish(scene, 60)
        for name in ("s", "other"):
            await scene.consume(name)
        await _until_delivered(scene, lambda counts: sum(counts) == 10, "s", "other")
        stats = await scene.broker.admin.topics.stats("t")
        reasons = {one.reasons[0].code: one.blocked_by for one in stats.subscriptions}
        assert "at its maximum of 10 messages a second" in reasons["dispatch_rate_of_topic"]
        await scene.advance(5.0)
        await _until_delivered(scene, lambda counts: 58 <= sum(counts) <= 60 and min(counts) >= 20, "s", "other")
        await scene.advance(6.2)
        await _until_delivered(scene, lambda counts: counts == [60, 60], "s", "other")
        stats = await scene.broker.admin.topics.stats("t")
        assert not any("rate" in one.blocked_by for one in stats.subscriptions)
        for one in stats.subscriptions:
            assert one.throttled_messages_by_topic > 0
            assert one.throttled_messages_by_subscription == one.throttled_bytes_by_topic == 0


@pytest.mark.parametrize("listener", LISTENERS)
async def test_each_subscription_and_the_broker_have_a_rate(listener: str) -> None:
    """RET-4"""
    settings = {"dispatch_throttling_rate_per_subscription_in_msg": 10, "dispatch_throttling_rate_in_msg": 15}
    async with running(listener, **settings) as scene:
        for topic in ("t", "u"):
            await _publish(scene, 40, topic)
        await scene.consume("s", "t")
        await _until_delivered(scene, lambda counts: counts == [10], "s")
        await scene.consume("s", "u")
        await until(lambda: scene.delivered("s", topic="u") == [5], "the broker's rate lets it pass")
        await scene.advance(1.0)
        await until(lambda: scene.delivered("s")[0] + scene.delivered("s", topic="u")[0] in (29, 30), "both go on")
        await scene.advance(4.0)
        await until(lambda: scene.delivered("s") == scene.delivered("s", topic="u") == [40], "all is delivered")
        assert scene.counters().throttled.messages[0] > 0
        assert scene.counters(topic="u").throttled.messages[2] > 0


@pytest.mark.parametrize("listener", LISTENERS)
async def test_bytes_and_batches_count(listener: str) -> None:
    """RET-4: a batch has its messages, or is one message if it is set so; bytes count as stored."""
    for settings, first in (
        ({"dispatch_throttling_rate_per_topic_in_msg": 10}, 10),
        ({"dispatch_throttling_rate_per_topic_in_msg": 3, "dispatch_throttling_on_batch_message_enabled": True}, 15),
        ({"dispatch_throttling_rate_per_subscription_in_byte": 200}, 10),
    ):
        async with running("grpc", **settings) as scene:
            await _publish(scene, 8, payload=bytes(100), num_messages_in_batch=5)
            if listener == "pulsar":
                scene.client = await scene.broker.pulsar_client()  # type: ignore[attr-defined]
            await scene.consume()
            await _until_delivered(scene, lambda counts: counts == [first], "s")  # noqa: B023 (called at once)
            await scene.advance(6.0)
            await _until_delivered(scene, lambda counts: counts == [40], "s")
            throttled = scene.counters().throttled
            assert any(throttled.bytes) == ("dispatch_throttling_rate_per_subscription_in_byte" in settings)


@pytest.mark.parametrize("listener", LISTENERS)
async def test_redelivered_messages_and_those_of_readers_count(listener: str) -> None:
    """RET-4"""
    async with running(listener, dispatch_throttling_rate_per_subscription_in_msg=10) as scene:
        await _publish(scene, 10)
        consumer = await scene.consume(shared=True)
        await _until_delivered(scene, lambda counts: counts == [10], "s")
        await scene.advance(0.5)
        await scene.consume(shared=True)
        if isinstance(scene.client, PulsarClient):
            await scene.client.close_consumer(consumer)
        else:
            await consumer.close()
        await _until_delivered(scene, lambda counts: counts == [15], "s")
        await scene.advance(0.5)
        await _until_delivered(scene, lambda counts: counts == [20], "s")
        async with scene.broker.client() as client:
            await client.create_reader("t", MessageId.earliest, receiver_queue_size=100)
            names = [one.name for one in scene.topic().subscriptions.stats() if not one.durable]
            await _until_delivered(scene, lambda counts: counts == [10], *names)


@pytest.mark.parametrize("listener", LISTENERS)
async def test_caught_up_consumers_can_be_exempt(listener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """RET-4"""
    monkeypatch.setattr(dispatch_rates, "CAUGHT_UP_ENTRIES", 20)
    settings = {
        "dispatch_throttling_rate_per_topic_in_msg": 10,
        "dispatch_throttling_on_non_backlog_consumer_enabled": False,
    }
    async with running(listener, **settings) as scene:
        await _publish(scene, 45)
        await scene.consume()
        await _until_delivered(scene, lambda counts: counts == [10], "s")
        await scene.advance(1.6)
        await _until_delivered(scene, lambda counts: counts == [45], "s")
        await _publish(scene, 20)
        await _until_delivered(scene, lambda counts: counts == [65], "s")


@pytest.mark.parametrize("listener", LISTENERS)
async def test_policies_change_the_rates_of_a_live_topic(listener: str) -> None:
    """RET-4, TOP-4: namespace, then topic; and their removal resumes at once."""
    async with running(listener) as scene:
        admin = scene.broker.admin
        await _publish(scene, 20)
        await scene.consume()
        await _until_delivered(scene, lambda counts: counts == [20], "s")

        async def wait_for_rate(kind: str, messages: int) -> None:
            settings = scene.topic().live_settings.current
            await until(lambda: getattr(settings, kind).limit.messages == messages, "the policy applies")

        policies = NamespacePolicies(dispatch_rate=DispatchRate(messages=10, period_seconds=2))
        await admin.namespaces.change_policies("public/default", policies)
        await wait_for_rate("topic_dispatch_rate", 10)
        await _publish(scene, 100)
        await _until_delivered(scene, lambda counts: counts == [30], "s")
        await scene.advance(2.0)
        await _until_delivered(scene, lambda counts: counts in ([39], [40]), "s")
        limits = TopicPolicies(dispatch_rate=DispatchRate(), subscription_dispatch_rate=DispatchRate(messages=20))
        await admin.topics.change_policies("t", limits)
        await wait_for_rate("subscription_dispatch_rate", 20)
        await _until_delivered(scene, lambda counts: counts[0] in (59, 60), "s")
        await admin.topics.change_policies("t", TopicPolicies(), remove=["subscription_dispatch_rate"])
        await _until_delivered(scene, lambda counts: counts == [120], "s")


@pytest.mark.parametrize("listener", LISTENERS)
async def test_a_rate_can_be_relative_to_the_rate_of_publishing(listener: str) -> None:
    """RET-4: what is published in a second may be dispatched in addition to the limit."""
    settings = {
        "dispatch_throttling_rate_per_topic_in_msg": 10,
        "dispatch_throttling_rate_relative_to_publish_rate": True,
    }
    async with running(listener, **settings) as scene:
        await _publish(scene, 100)
        await scene.consume()
        await _until_delivered(scene, lambda counts: counts == [10], "s")
        await _publish(scene, 30)  # in the second that follows
        await scene.advance(1.2)
        await scene.advance(1.0)
        # 10 a second, and then 10 + 25 a second.
        await _until_delivered(scene, lambda counts: 40 <= counts[0] <= 60, "s")
