"""Backlog quotas, through both listeners: what producers get, what is evicted, and that it ends (RET-4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import pytest

from magnetar import MessageId, exceptions
from magnetar.admin import BacklogQuota, NamespacePolicies, TopicPolicies
from magnetar_broker.http.topic_metrics import TopicMetrics
from magnetar_broker.topics import policy_refresh
from magnetar_broker.topics.backlog_quota_rules import QuotaKind
from magnetar_broker.topics.topic import Topic
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandProducer, ServerError
from magnetar_wire.clock import SystemClock
from tests.running import until, within
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, running_pulsar_broker

_HOLD, _EXCEPTION, _EVICTION = "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
_SIZE, _AGE = QuotaKind


@pytest.fixture(autouse=True)
def _follows_changes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_refresh, "MIN_INTERVAL_S", 0.02)


@asynccontextmanager
async def _running(**settings: Any) -> AsyncIterator[PulsarScene]:
    fast = {"metadata_cache_ttl_seconds": 0.02, "topic_housekeeping_interval_seconds": 0.02}
    async with running_pulsar_broker(**fast, backlog_quota_check_interval_in_seconds=0.02, **settings) as scene:
        yield scene


async def _publish(scene: PulsarScene, count: int, size: int = 1000) -> None:
    """Publish entries of that size, after the subscription `s` was created."""
    await scene.admin.subscriptions.create("t", "s", MessageId.earliest)
    async with scene.client() as client:
        producer = await client.create_producer("t", batching_enabled=False)
        for number in range(count):
            await producer.send(b"%02d" % number + bytes(size))


async def _set_quota(scene: PulsarScene, quota: BacklogQuota) -> None:
    """Set the quota by size."""
    await scene.admin.topics.change_policies("t", TopicPolicies(backlog_quota_size=quota))


def _topic(scene: PulsarScene) -> Topic:
    return next(one for one in scene.broker_session.topics.loaded() if one.name.local_name == "t")


async def test_held_messages_are_stored_when_the_backlog_has_shrunk() -> None:
    """RET-4: an open producer's messages wait, the send timeout names the quota, and consumers are not held."""

    async with _running() as scene:
        await _publish(scene, 10)
        async with scene.client() as client:
            producer = await client.create_producer("t", batching_enabled=False)
            hurried = await client.create_producer("t", send_timeout_millis=400)
            topic = _topic(scene)
            await _set_quota(scene, BacklogQuota(_HOLD, 5000))
            await until(lambda: not topic.producers.connected(), "the producers are closed")
            assert "the quota is 5,000 bytes" in (await scene.admin.topics.stats("t")).waiting_for
            sending = asyncio.create_task(producer.send(b"held"))
            with pytest.raises(
                exceptions.Timeout, match=r"subscription 's' has a backlog of .* the quota is 5,000 bytes"
            ):
                await hurried.send(b"never")
            assert not sending.done()
            consumer = await client.subscribe("t", "s")
            for _ in range(10):
                await consumer.acknowledge(await within(consumer.receive(), "a held topic delivers"))
            await within(sending, "the message is stored")
            assert (await within(consumer.receive(), "the message")).data() == b"held"

            async def is_released() -> bool:
                return not (await scene.admin.topics.stats("t")).waiting_for

            await until(is_released, "the topic waits for nothing")


async def test_a_producer_that_is_held_at_its_creation_waits_for_the_operation_timeout() -> None:
    async with _running() as scene:
        await _publish(scene, 3)
        await _set_quota(scene, BacklogQuota(_HOLD, 100))
        async with scene.client(operation_timeout_seconds=1) as client:
            await until(lambda: _topic(scene).live_settings.current.size_quota.limit == 100, "the quota is known")
            with pytest.raises(exceptions.ProducerBlockedQuotaExceededError, match="the quota is 100 bytes"):
                await client.create_producer("t")
            creating = asyncio.create_task(client.create_producer("t"))
            await scene.admin.subscriptions.skip_all("t", "s")
            await (await within(creating, "the producer is created")).send(b"x")


async def test_messages_fail_with_the_exception_until_the_backlog_has_shrunk() -> None:
    """RET-4: with `producer_exception`. What was stored before has its result, and the producer stays usable."""

    async with _running() as scene:
        await _publish(scene, 3)
        async with scene.client() as client:
            producer = await client.create_producer("t", batching_enabled=False)
            topic = _topic(scene)
            await _set_quota(scene, BacklogQuota(_EXCEPTION, 100))
            await until(lambda: not topic.producers.connected(), "the producer is closed")
            with pytest.raises(
                exceptions.ProducerBlockedQuotaExceededException, match=r"'s' has a backlog of .* 100 bytes"
            ):
                await within(producer.send(b"fails"), "the error")
            with pytest.raises(exceptions.ProducerBlockedQuotaExceededException):
                await client.create_producer("t")
            await scene.admin.subscriptions.skip_all("t", "s")

            async def is_stored() -> bool:
                try:
                    await producer.send(b"stored")
                except exceptions.ProducerBlockedQuotaExceededException:
                    return False
                return True

            await until(is_stored, "a message is stored")


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (_HOLD, ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR),
        (_EXCEPTION, ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION),
    ],
)
async def test_stock_producers_are_closed_and_refused_by_the_policy(policy: str, error: ServerError) -> None:
    """RET-4: results of what was accepted come before CLOSE_PRODUCER."""

    async with _running() as scene:
        await _publish(scene, 3)
        client = await scene.pulsar_client()
        name = (await client.open_producer()).producer_name
        await _set_quota(scene, BacklogQuota(policy, 100))
        sequence_id = 0
        while not client.answers_of(BaseCommand.CLOSE_PRODUCER):
            client.publish(1, sequence_id, name=name)
            sequence_id += 1
            await asyncio.sleep(0.001)
        command = CommandProducer(topic="t", producer_id=2, request_id=client.request_id())
        refused = (await client.ask(BaseCommand.PRODUCER, producer=command)).error
        assert (refused.error, "subscription 's' has a backlog of" in refused.message) == (error, True)
        receipts = len(client.answers_of(BaseCommand.SEND_RECEIPT))
        assert client.answers_of(BaseCommand.SEND_RECEIPT)[-1].send_receipt.sequence_id == receipts - 1
        assert _topic(scene).log.ledger_list.entries == 3 + receipts
        await scene.admin.subscriptions.skip_all("t", "s")
        await client.open_producer(3)


async def test_eviction_by_size_goes_to_ninety_percent_of_the_quota() -> None:
    """RET-4: the slowest subscriptions lose their oldest messages, durably, and no more than necessary."""

    async with _running() as scene:
        await _publish(scene, 20)
        await scene.admin.subscriptions.create("t", "behind", MessageId.earliest)
        await scene.admin.subscriptions.create("t", "ahead", MessageId.latest)
        entry_bytes = (await scene.admin.topics.stats("t")).backlog_bytes // 20
        topic = _topic(scene)
        reader = await (await scene.pulsar_client()).try_subscribe(1, "t", "reader", durable=False)
        assert reader.type == BaseCommand.SUCCESS
        await _set_quota(scene, BacklogQuota(_EVICTION, entry_bytes * 10))
        backlog = topic.quotas.count_backlog_bytes
        await until(lambda: topic.quotas.evictions[_SIZE] > 0 and backlog() < entry_bytes * 10, "messages are evicted")
        await scene.admin.topics.unload("t")
        left = {one.subscription: one.backlog_entries for one in (await scene.admin.topics.stats("t")).subscriptions}
        assert left == {"s": 9, "behind": 9, "ahead": 0}
        assert topic.quotas.evictions == {_SIZE: 1, _AGE: 0}


async def test_statistics_and_metrics_have_quotas_and_evictions() -> None:
    """RET-4: an administrator can have the quotas checked at once."""

    async with _running() as scene:
        await _publish(scene, 20)
        await scene.admin.namespaces.change_policies(
            "public/default", NamespacePolicies(backlog_quota_age=BacklogQuota(_HOLD, limit_time_seconds=70))
        )
        size = (await scene.admin.topics.stats("t")).backlog_bytes
        await _set_quota(scene, BacklogQuota(_EVICTION, size - 1))
        topic = _topic(scene)
        await until(lambda: topic.live_settings.current.size_quota.limit == size - 1, "the quota is known")
        await scene.admin.brokers.check_backlog_quotas()
        await until(lambda: topic.quotas.count_backlog_bytes() < size, "messages are evicted")
        stats = await scene.admin.topics.stats("t")
        assert (stats.backlog_quota_bytes, stats.backlog_quota_seconds) == (size - 1, 70)
        assert (stats.evictions_by_size, stats.evictions_by_age) == (1, 0)
        metrics = TopicMetrics("c", max_topics=10)
        await metrics.gather([topic])
        samples = {
            (one.name, one.labels.get("quota_type")): one.value
            for family in metrics.list_families()
            for one in family.samples
            if one.labels["topic"] == str(topic.name)
        }
        assert samples["pulsar_storage_backlog_quota_limit", None] == size - 1
        assert samples["pulsar_storage_backlog_quota_limit_time", None] == 70
        assert samples["pulsar_storage_backlog_size", None] == stats.backlog_bytes < size
        assert samples["pulsar_storage_backlog_quota_exceeded_evictions_total", "size"] == 1
        assert samples["pulsar_storage_backlog_quota_exceeded_evictions_total", "time"] == 0


@pytest.fixture
def pass_seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets brokers' clocks ahead."""
    time_ms = SystemClock.time_ms

    def pass_seconds(seconds: int) -> None:
        monkeypatch.setattr(SystemClock, "time_ms", lambda clock: time_ms(clock) + seconds * 1000)

    return pass_seconds


async def test_eviction_by_age_skips_what_is_older(pass_seconds: Callable[[int], None]) -> None:
    """RET-4: newer messages of the same ledger stay."""

    async with _running() as scene:
        await _publish(scene, 3)
        topic = _topic(scene)
        pass_seconds(95)
        async with scene.client() as client:
            await (await client.create_producer("t")).send(b"new")
        quota = BacklogQuota(_EVICTION, limit_time_seconds=100)
        await scene.admin.topics.change_policies("t", TopicPolicies(backlog_quota_age=quota))
        pass_seconds(101)
        await until(lambda: topic.quotas.evictions[_AGE] > 0, "the old ones are evicted")
        await scene.admin.topics.unload("t")
        (left,) = (await scene.admin.topics.stats("t")).subscriptions
        assert left.backlog_entries == 1


@pytest.mark.parametrize(("by_size", "by_age", "evicted"), [(_HOLD, _EVICTION, _AGE), (_EVICTION, _HOLD, _SIZE)])
async def test_both_quotas_are_enforced(
    pass_seconds: Callable[[int], None], by_size: str, by_age: str, evicted: QuotaKind
) -> None:
    """RET-4: one that blocks producers does not keep the other one from evicting, which lets them go on."""

    async with _running() as scene:
        await _publish(scene, 3)
        pass_seconds(100)
        own = TopicPolicies(
            backlog_quota_size=BacklogQuota(by_size, 1500),
            backlog_quota_age=BacklogQuota(by_age, limit_time_seconds=50),
        )
        await scene.admin.topics.change_policies("t", own)
        quotas = _topic(scene).quotas
        await until(lambda: quotas.evictions[evicted] > 0, "the old messages are evicted")
        if evicted is _SIZE:  # the one that is left is old, too
            await until(lambda: "a message of 100 s" in quotas.blocks_producers, "producers are held")
            await scene.admin.subscriptions.skip_all("t", "s")
        async with scene.client() as client:
            await within((await client.create_producer("t")).send(b"x"), "the message is stored")
        assert quotas.evictions[evicted] == 1


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (_HOLD, ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR),
        (_EXCEPTION, ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION),
    ],
)
async def test_a_quota_by_age_closes_and_refuses_stock_producers(
    policy: str, error: ServerError, pass_seconds: Callable[[int], None]
) -> None:
    """RET-4: until the old message is acknowledged."""
    async with _running() as scene:
        await _publish(scene, 1)
        client = await scene.pulsar_client()
        await client.open_producer()
        pass_seconds(10)
        quota = BacklogQuota(policy, limit_time_seconds=1)
        await scene.admin.topics.change_policies("t", TopicPolicies(backlog_quota_age=quota))
        await client.wait_for_answers(BaseCommand.CLOSE_PRODUCER)
        command = CommandProducer(topic="t", producer_id=2, request_id=client.request_id())
        refused = (await client.ask(BaseCommand.PRODUCER, producer=command)).error
        assert (refused.error, "has a message of 10 s" in refused.message) == (error, True)
        await scene.admin.subscriptions.skip_all("t", "s")
        await client.open_producer(3)


async def test_a_quota_by_age_holds_producers(pass_seconds: Callable[[int], None]) -> None:
    """RET-4"""
    async with _running() as scene:
        await _publish(scene, 1)
        pass_seconds(10)
        await scene.admin.namespaces.change_policies(
            "public/default", NamespacePolicies(backlog_quota_age=BacklogQuota(_EXCEPTION, limit_time_seconds=1))
        )
        async with scene.client() as client:

            async def find_refusal() -> str:
                try:
                    await (await client.create_producer("t")).close()
                except exceptions.ProducerBlockedQuotaExceededException as error:
                    return str(error)
                return ""

            async def is_refused() -> bool:
                return "subscription 's' has a message of 10 s in its backlog" in await find_refusal()

            await until(is_refused, "the message is too old")
            await scene.admin.subscriptions.skip_all("t", "s")
            await client.create_producer("t")


async def test_the_brokers_quota_applies_unless_a_policy_replaces_it() -> None:
    """0 bytes are reached by each topic, and -1 is no limit (as in Pulsar). System topics, such as that with topics'
    policies, have no quota."""

    default = {"backlog_quota_default_limit_bytes": 0, "backlog_quota_default_retention_policy": _EXCEPTION}
    refused = exceptions.ProducerBlockedQuotaExceededException
    async with _running(**default) as scene, scene.client() as client:
        with pytest.raises(refused, match="backlog_quota_default_limit_bytes"):
            await client.create_producer("t")
        await client.create_producer("non-persistent://public/default/t")  # it has no backlog
        await _set_quota(scene, BacklogQuota(_HOLD, -1))

        async def is_open() -> bool:
            try:
                await client.create_producer("t")
            except refused:
                return False
            return True

        await until(is_open, "the topic's policy has no limit")


async def test_no_quota_is_enforced_if_the_check_is_off() -> None:
    default = {"backlog_quota_default_limit_bytes": 0, "backlog_quota_default_limit_second": 1}
    async with _running(**default, backlog_quota_check_enabled=False) as scene, scene.client() as client:
        await (await client.create_producer("t")).send(b"x")
        assert not _topic(scene).quotas.is_due(inf)
