"""The rates at which a topic's producers may publish, over gRPC and over Pulsar's protocol."""

from __future__ import annotations

import asyncio
from functools import partial
from operator import eq
from typing import Any

import pytest

from magnetar import exceptions
from magnetar.admin import NamespacePolicies, PublishRate, TopicPolicies
from magnetar_broker.settings.rates import NO_RATE, Rate
from magnetar_broker.topics import policy_refresh
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.publish_throttle import PublishThrottle
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_protos.broker_pb2 import CloseProducer
from magnetar_testing.clock import ManualClock
from tests.produce_client import entry
from tests.running import until, within
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.rate_scene import LISTENERS, running


@pytest.fixture(autouse=True)
def _refreshes_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_refresh, "MIN_INTERVAL_S", 0.02)


@pytest.mark.parametrize("listener", LISTENERS)
async def test_publishing_waits_for_the_rate(listener: str) -> None:
    """RET-4: nothing is refused, all is stored in order, and statistics name the rate while it waits."""
    async with running(listener, max_publish_rate_per_topic_in_messages=10) as scene:
        publisher = await scene.open()
        await publisher.publish(45)
        await scene.settle([publisher], lambda stored: stored == [10])
        stats = await scene.broker.admin.topics.stats("t")
        assert stats.waiting_for == "the publish rate of the topic is at its maximum of 10 messages a second"
        for passed in (15, 20, 25):
            await scene.advance(0.5)
            await scene.settle([publisher], partial(eq, [passed]))
        await scene.advance(2.0)
        await scene.settle([publisher], lambda stored: stored == [45])
        assert publisher.stored == list(range(45))
        stats = await scene.broker.admin.topics.stats("t")
        assert stats.waiting_for == ""
        assert stats.publish_limited_times > 0


@pytest.mark.parametrize("listener", LISTENERS)
async def test_producers_share_the_rate_and_other_topics_go_on(listener: str) -> None:
    """RET-4"""
    async with running(listener, max_publish_rate_per_topic_in_messages=10) as scene:
        publishers = [await scene.open() for _ in range(3)]
        other = await scene.open("other")
        for publisher in publishers:
            await publisher.publish(60)
        await other.publish(5)
        await scene.settle([other], lambda stored: stored == [5])
        await scene.advance(5.0)
        await scene.settle(publishers, lambda stored: sum(stored) >= 59)
        counts = [len(one.stored) for one in publishers]
        assert max(counts) - min(counts) <= 12, counts  # the first one has used the burst
        await scene.advance(13.0)
        await scene.settle(publishers, lambda stored: stored == [60, 60, 60])


@pytest.mark.parametrize("listener", LISTENERS)
async def test_the_brokers_rate_limits_all_topics_together(listener: str) -> None:
    """RET-4"""
    async with running(listener, broker_publisher_throttling_max_message_rate=10) as scene:
        publishers = [await scene.open(name) for name in ("a", "b")]
        for publisher in publishers:
            await publisher.publish(30)
        await scene.settle(publishers, lambda stored: sum(stored) == 10)
        await scene.advance(2.0)
        await scene.settle(publishers, lambda stored: 28 <= sum(stored) <= 30 and min(stored) >= 8)
        await scene.advance(4.0)
        await scene.settle(publishers, lambda stored: stored == [30, 30])


@pytest.mark.parametrize("listener", LISTENERS)
async def test_bytes_count_as_stored_and_a_large_entry_passes(listener: str) -> None:
    """RET-4: an entry above the rate passes, and the next ones wait for what it has taken."""
    size = len(entry(0, producer="p1"))
    rates = dict.fromkeys(("max_publish_rate_per_topic_in_bytes", "broker_publisher_throttling_max_byte_rate"), size)
    rates["max_publish_rate_per_topic_in_bytes" if listener == "grpc" else list(rates)[1]] //= 2
    async with running(listener, **rates) as scene:
        publisher = await scene.open()
        await publisher.publish(3)
        await scene.settle([publisher], lambda stored: stored == [1])
        await scene.advance(1.9)
        await scene.settle([publisher], lambda stored: stored == [1] or stored == [2])
        await scene.advance(2.2)
        await scene.settle([publisher], lambda stored: stored == [3])


async def test_a_batch_counts_with_its_messages() -> None:
    """RET-4"""
    async with running("grpc", max_publish_rate_per_topic_in_messages=10) as scene:
        publisher = await scene.open()
        await publisher.publish(4, bytes(100), num_messages_in_batch=5)
        await scene.settle([publisher], lambda stored: stored == [2])
        await scene.advance(1.0)
        await scene.settle([publisher], lambda stored: stored == [4])


@pytest.mark.parametrize("listener", LISTENERS)
async def test_policies_change_the_rate_of_a_live_topic(listener: str) -> None:
    """RET-4, TOP-4: within seconds; a topic's own policy overrides its namespace's, and removal resumes at once."""
    async with running(listener) as scene:
        admin, publisher = scene.broker.admin, await scene.open()
        await publisher.publish(20)
        await scene.settle([publisher], lambda stored: stored == [20])

        async def wait_for_rate(rate: int) -> None:
            settings = scene.topic().live_settings.current
            await until(lambda: settings.topic_publish_rate.messages == rate, "the policy applies")

        await admin.namespaces.change_policies("public/default", NamespacePolicies(publish_rate=PublishRate(10)))
        await wait_for_rate(10)
        await publisher.publish(100)
        await scene.settle([publisher], lambda stored: stored == [30])
        await admin.topics.change_policies("t", TopicPolicies(publish_rate=PublishRate(20)))
        await wait_for_rate(20)
        await scene.advance(1.0)
        await scene.settle([publisher], lambda stored: stored == [50])
        await admin.topics.change_policies("t", TopicPolicies(publish_rate=PublishRate(-1)))
        await scene.settle([publisher], lambda stored: stored == [120])


@pytest.mark.parametrize("listener", LISTENERS)
async def test_a_close_waits_for_the_rate_and_an_unload_does_not(listener: str) -> None:
    """RET-4: what a producer has sent before it is closed is stored; an unloaded topic's producer resends it."""
    async with running(listener, max_publish_rate_per_topic_in_messages=5) as scene:
        publisher = await scene.open()
        await publisher.publish(10)
        await scene.settle([publisher], lambda stored: stored == [5])
        closing = asyncio.create_task(_close(scene.client, 1))
        await scene.open("q")
        assert not closing.done()
        await scene.advance(1.2)
        await within(closing, "it is closed")
        assert publisher.stored == list(range(10))
        publisher = await scene.open()
        await publisher.publish(10)
        await until(lambda: scene.topic().waiting_for() != "", "it waits")
        await within(scene.broker.admin.topics.unload("t"), "it is unloaded")
        assert len(publisher.stored) < 10


async def _close(client: Any, producer_id: int) -> None:
    if isinstance(client, PulsarClient):
        await client.close_producer(producer_id)
        return
    await client.send(CloseProducer(producer_id=producer_id))
    await until(lambda: producer_id in client.ended, "it is closed")


async def test_a_paused_producer_is_sent_the_reason() -> None:
    """RET-4: over gRPC, the producer is paused, and the SDK's timeout names the rate."""
    async with running("grpc", max_publish_rate_per_topic_in_messages=1) as scene:
        await scene.open()
        async with scene.broker.client() as client:
            producer = await client.create_producer("t", send_timeout_millis=300, batching_enabled=False)
            with pytest.raises(exceptions.Timeout, match="publish rate of the topic is at its maximum of 1 messages"):
                await asyncio.gather(*(producer.send(b"x") for _ in range(3)))
            await scene.advance(3.0)


async def test_the_reason_is_named_until_the_turn_comes() -> None:
    """RET-4: turns are given at intervals, so the rate may allow more while entries wait. `blocked_by` of subscriptions
    has the same text."""
    clock, maximum = ManualClock(), 10
    limit = RateLimit("the publish rate of the topic", lambda: Rate(messages=maximum), clock)
    throttle = PublishThrottle(PublishBudget(1000), limit, RateLimit("none", lambda: NO_RATE, clock))
    assert limit.get_allowance().messages > 0
    limit.record_passed(10, 0)
    publishing = asyncio.create_task(throttle.publish_when_allowed(lambda: None))
    await asyncio.sleep(0)
    assert throttle.waiting_for == "the publish rate of the topic is at its maximum of 10 messages a second"
    maximum = 0
    limit.reread_rate()
    assert throttle.waiting_for.startswith(
        "the publish rate of the topic was at its maximum a moment ago, and turns are"
    )
    limit.wait_for_turn(list)
    assert "others wait for it, too" in throttle.waiting_for
    limit.follow_rate_change()
    await publishing
    assert not throttle.waiting_for
