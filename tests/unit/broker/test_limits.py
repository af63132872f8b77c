"""Limits of producers, consumers, subscriptions and messages as live policies, through both listeners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from magnetar import ConsumerType, MessageId, aio, exceptions
from magnetar.admin import NamespacePolicies, TopicPolicies
from magnetar_broker.topics import policy_refresh
from magnetar_broker.topics.topic import Topic
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandProducer, ServerError
from magnetar_wire.topic_name import TopicName
from tests.produce_client import entry
from tests.running import until, within
from tests.unit.broker.pulsar.pulsar_client import PulsarClient, sent
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, running_pulsar_broker

_TYPES = (ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover, ConsumerType.KeyShared)
_EXCLUSIVE, _SHARED, _FAILOVER, _KEY_SHARED = _TYPES


@pytest.fixture(autouse=True)
def _follows_changes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_refresh, "MIN_INTERVAL_S", 0.02)


class _Grpc:
    """Opens clients over gRPC. An attempt returns the text of its error, of the expected class; empty: it is open."""

    def __init__(self, scene: PulsarScene, client: aio.Client, pulsar: PulsarClient) -> None:
        self.scene, self.client = scene, client
        self.others: list[Any] = []

    async def produce(self, topic: str = "t") -> str:
        refused = exceptions.ProducerBusy, exceptions.NotAllowedError
        return await self._try(self.client.create_producer(topic), *refused)

    async def consume(self, subscription: str, consumer_type: ConsumerType = _SHARED) -> str:
        refused = exceptions.ConsumerBusy, exceptions.NotAllowedError
        return await self._try(self.client.subscribe("t", subscription, consumer_type=consumer_type), *refused)

    async def read(self) -> str:
        return await self._try(self.client.create_reader("t", MessageId.latest), exceptions.NotAllowedError)

    async def publish(self, size: int) -> str:
        producer = await self.client.create_producer("t", batching_enabled=False)
        try:
            return await self._try(producer.send(bytes(size)), exceptions.MessageTooBig)
        finally:
            await producer.close()

    async def close(self) -> None:
        for one in self.others:
            await one.close()
        self.others.clear()

    async def _try(self, opening: Awaitable[Any], *refused: type[exceptions.MagnetarException]) -> str:
        try:
            opened = await within(opening, "an answer")
        except refused as error:
            return str(error)
        if not isinstance(opened, MessageId):
            self.others.append(opened)
        return ""


class _Stock:
    """Opens clients of Pulsar's protocol."""

    def __init__(self, scene: PulsarScene, client: aio.Client, pulsar: PulsarClient) -> None:
        self.client = pulsar
        self._numbers = count(1)
        self._producers: list[int] = []
        self._consumers: list[int] = []

    async def produce(self, topic: str = "t") -> str:
        number = next(self._numbers)
        command = CommandProducer(topic=topic, producer_id=number, request_id=self.client.request_id())
        answer = await self.client.ask(BaseCommand.PRODUCER, producer=command)
        if answer.type == BaseCommand.ERROR:
            assert answer.error.error in (ServerError.PRODUCER_BUSY, ServerError.NOT_ALLOWED_ERROR)
            return answer.error.message
        self._producers.append(number)
        return ""

    async def consume(self, subscription: str, consumer_type: ConsumerType = _SHARED) -> str:
        return await self._subscribe(subscription, sub_type=_TYPES.index(consumer_type))

    async def read(self) -> str:
        return await self._subscribe(f"reader-{next(self._numbers)}", durable=False)

    async def _subscribe(self, subscription: str, **fields: Any) -> str:
        number = next(self._numbers)
        answer = await self.client.try_subscribe(number, "t", subscription, **fields)
        if answer.type == BaseCommand.ERROR:
            assert answer.error.error in (ServerError.CONSUMER_BUSY, ServerError.NOT_ALLOWED_ERROR)
            return answer.error.message
        self._consumers.append(number)
        return ""

    async def publish(self, size: int) -> str:
        number = next(self._numbers)
        opened = await self.client.open_producer(number)
        self.client.send_bytes(sent(number, 0, entry(0, bytes(size), opened.producer_name)))
        answers = self.client.answers_of(BaseCommand.SEND_ERROR), self.client.answers_of(BaseCommand.SEND_RECEIPT)
        before = sum(map(len, answers))
        await until(
            lambda: (
                len(self.client.answers_of(BaseCommand.SEND_ERROR))
                + len(self.client.answers_of(BaseCommand.SEND_RECEIPT))
                > before
            ),
            "an answer",
        )
        await self.client.close_producer(number)
        if len(self.client.answers_of(BaseCommand.SEND_ERROR)) > len(answers[0]):
            return self.client.answers_of(BaseCommand.SEND_ERROR)[-1].send_error.message
        return ""

    async def close(self) -> None:
        for number in self._producers:
            await self.client.close_producer(number)
        for number in self._consumers:
            await self.client.close_consumer(number)
        self._producers.clear()
        self._consumers.clear()


_Listener = _Grpc | _Stock
_LISTENERS = (_Grpc, _Stock)
_Make = Callable[[PulsarScene, aio.Client, PulsarClient], _Listener]


@asynccontextmanager
async def _running(listener: _Make, **settings: Any) -> AsyncIterator[tuple[PulsarScene, _Listener]]:
    """Yield a broker with a topic `t`, and clients."""
    async with running_pulsar_broker(metadata_cache_ttl_seconds=0.02, **settings) as scene:
        await scene.admin.topics.create("t")
        async with scene.client(operation_timeout_seconds=5) as client:
            yield scene, listener(scene, client, await scene.pulsar_client(client_version="Pulsar-Java-v4.0.7"))


def _topic(scene: PulsarScene) -> Topic:
    topic = scene.broker_session.topics.get_loaded(TopicName.parse("t"))
    assert topic is not None
    return topic


async def _set_policies(scene: PulsarScene, **policies: Any) -> None:
    """Set policies of the topic, and wait until they are known."""
    await scene.admin.topics.change_policies("t", TopicPolicies(**policies))
    expected = await scene.admin.topics.policies("t")
    live = _topic(scene).live_settings

    def is_known() -> bool:
        return all(getattr(live.current, name) == getattr(expected, name) for name in policies)

    await until(is_known, "the policies are known")


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_producers_of_a_topic_are_limited(listener: _Make) -> None:
    """A lowered limit closes none."""

    async with _running(listener, max_producers_per_topic=1) as (scene, clients):
        assert not await clients.produce()
        assert "max_producers_per_topic allows (1): close some, or raise the policy" in await clients.produce()
        await _set_policies(scene, max_producers_per_topic=2)
        assert not await clients.produce()
        assert "allows (2)" in await clients.produce()
        await _set_policies(scene, max_producers_per_topic=1)
        assert len(_topic(scene).producers) == 2
        assert "allows (1)" in await clients.produce()
        await _set_policies(scene, max_producers_per_topic=0)
        assert not await clients.produce()


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_consumers_of_a_topic_and_of_a_subscription_are_limited(listener: _Make) -> None:
    """TOP-4: a topic's own policy replaces its namespace's, and that the brokers' setting."""

    async with _running(listener, max_consumers_per_topic=1) as (scene, clients):
        assert not await clients.consume("s")
        assert "max_consumers_per_topic allows (1): close some, or raise the policy" in await clients.consume("s2")
        policies = NamespacePolicies(max_consumers_per_topic=3, max_consumers_per_subscription=1)
        await scene.admin.namespaces.change_policies("public/default", policies)
        live = _topic(scene).live_settings
        await until(lambda: live.current.max_consumers_per_topic == 3, "the namespace's limit is known")
        assert "max_consumers_per_subscription allows (1): close some" in await clients.consume("s")
        assert not await clients.consume("s2")
        assert not await clients.read()
        assert "max_consumers_per_topic allows (3): close some" in await clients.consume("s3")
        await _set_policies(scene, max_consumers_per_topic=0)
        assert not await clients.consume("s3")


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_clients_that_come_at_the_same_time_do_not_exceed_the_limits(listener: _Make) -> None:
    """CHK-69: each is counted when it joins, not when its request comes."""

    limits = {"max_producers_per_topic": 2, "max_consumers_per_topic": 3, "max_subscriptions_per_topic": 2}
    async with _running(listener, **limits) as (scene, clients):
        produced = await asyncio.gather(*(clients.produce() for _ in range(6)))
        assert produced.count("") == 2 == len(_topic(scene).producers)
        consumed = await asyncio.gather(*(clients.consume(f"s{number % 3}") for number in range(9)))
        assert consumed.count("") == 3 == _topic(scene).subscriptions.consumers
        assert len(_topic(scene).subscriptions.names) == 2


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_first_use_creates_no_topic_above_the_limit_of_the_namespace(listener: _Make) -> None:
    """Of clients that come at the same time, too."""

    async with _running(listener, max_topics_per_namespace=3) as (scene, clients):
        created = await asyncio.gather(*(clients.produce(f"new-{number}") for number in range(6)))
        assert created.count("") == 2
        assert "max_topics_per_namespace (policy or setting), which is 3" in max(created)
        assert len(await scene.admin.topics.list("public/default")) == 3
        changed = NamespacePolicies(max_topics_per_namespace=0)
        await scene.admin.namespaces.change_policies("public/default", changed)
        assert not await clients.produce("more")


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_subscriptions_of_a_topic_are_limited(listener: _Make) -> None:
    """Those that are not durable, too. Consumers of an existing one are never refused."""

    async with _running(listener) as (scene, clients):
        assert not await clients.consume("s")
        await _set_policies(scene, max_subscriptions_per_topic=2)
        assert not await clients.read()
        assert "has 2 subscriptions, and max_subscriptions_per_topic (policy or setting)" in await clients.consume("s2")
        assert "max_subscriptions_per_topic" in await clients.read()
        with pytest.raises(exceptions.NotAllowedError, match="max_subscriptions_per_topic"):
            await scene.admin.subscriptions.create("t", "s2")
        await _set_policies(scene, max_subscriptions_per_topic=1)
        assert not await clients.consume("s")
        await _set_policies(scene, max_subscriptions_per_topic=0)
        assert not await clients.consume("s2")


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_only_enabled_types_of_subscriptions_are_used(listener: _Make) -> None:
    """TOP-4: a refused consumer creates no subscription; none in the policy is as if it was not set."""

    async with _running(listener, subscription_types_enabled=("Exclusive", "Shared")) as (scene, clients):
        assert not await clients.consume("shared", _SHARED)
        refusal = await clients.consume("failover", _FAILOVER)
        assert "has no Failover subscriptions: use Exclusive or Shared (subscription_types_enabled" in refusal
        assert "has no Key_Shared subscriptions" in await clients.consume("by key", _KEY_SHARED)
        enabled = ("Failover", "Key_Shared")
        await scene.admin.topics.change_policies("t", TopicPolicies(subscription_types_enabled=enabled))
        live = _topic(scene).live_settings
        await until(lambda: live.current.subscription_types_enabled == enabled, "the policy is known")
        assert "has no Shared subscriptions" in await clients.consume("shared", _SHARED)
        assert not await clients.consume("failover", _FAILOVER)
        assert not await clients.consume("by key", _KEY_SHARED)
        await scene.admin.topics.change_policies("t", TopicPolicies(subscription_types_enabled=()))
        await until(lambda: "Shared" in live.current.subscription_types_enabled, "the policy is known")
        assert not await clients.consume("shared", _SHARED)
        assert _topic(scene).subscriptions.names == ["shared", "failover", "by key"]


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_messages_of_a_topic_have_a_limit(listener: _Make) -> None:
    """TOP-4: of the stored payload of a message or batch. 0 is the brokers' limit."""

    async with _running(listener) as (scene, clients):
        live = _topic(scene).live_settings
        for limit, fits in ((100, 100), (0, 200)):
            await scene.admin.topics.change_policies("t", TopicPolicies(max_message_size_bytes=limit))
            expected = limit or live.current.max_message_size

            def is_known(expected: int = expected) -> bool:
                return live.current.max_topic_message_size == expected

            await until(is_known, "the limit is known")
            assert not await clients.publish(fits)
            if limit:
                assert await clients.publish(fits + 1)


async def test_chunks_may_exceed_the_limit_of_a_topics_messages() -> None:
    """As in Pulsar: they are limited by the brokers' `max_message_size`. A client that was connected before the change
    gets the policy's name."""

    async with _running(_Stock) as (scene, clients):
        client = clients.client
        assert isinstance(client, PulsarClient)
        name = (await client.open_producer(7)).producer_name
        await scene.admin.topics.change_policies("t", TopicPolicies(max_message_size_bytes=10))
        await until(lambda: _topic(scene).live_settings.current.max_topic_message_size == 10, "it is known")
        chunk = {"uuid": "u", "chunk_id": 0, "num_chunks_from_msg": 2, "total_chunk_msg_size": 40}
        client.send_bytes(sent(7, 0, entry(0, bytes(20), name, **chunk)) + sent(7, 1, entry(1, bytes(20), name)))
        await client.receipts(7, 1)
        error = (await client.wait_for_answers(BaseCommand.SEND_ERROR)).send_error
        assert (error.error, "policy max_message_size_bytes" in error.message) == (ServerError.NOT_ALLOWED_ERROR, True)


async def test_clients_of_one_host_are_limited() -> None:
    """Each host has the limit for itself."""

    limits = {"max_same_address_producers_per_topic": 1, "max_same_address_consumers_per_topic": 1}
    async with _running(_Stock, **limits) as (scene, clients):
        assert not await clients.produce()
        assert not await clients.consume("s")
        assert "producers from 10.0.0.1 as max_same_address_producers_per_topic allows (1)" in await clients.produce()
        assert "consumers from 10.0.0.1 as max_same_address_consumers_per_topic allows (1)" in await clients.consume(
            "s"
        )
        other = scene.raw_client(peer="10.0.0.2")
        await other.connect()
        await other.open_producer()
        await other.subscribe(subscription="s", sub_type=1)


@pytest.mark.parametrize("limit", ["max_unacked_messages_per_consumer", "max_unacked_messages_per_subscription"])
@pytest.mark.parametrize("listener", _LISTENERS)
async def test_unacknowledged_messages_are_limited_by_policies(listener: _Make, limit: str) -> None:
    """TOP-4, SUB-4: connected consumers follow a change at once; what they have already stays theirs."""

    async with _running(listener) as (scene, clients):
        await _set_policies(scene, **{limit: 2})
        assert not await clients.consume("s")
        async with scene.client() as client:
            producer = await client.create_producer("t", batching_enabled=False)
            for number in range(6):
                await producer.send(b"%d" % number)
        if isinstance(clients, _Stock):
            clients.client.flow(1, 100)
        topic = _topic(scene)

        def unacked() -> int:
            return topic.subscriptions.stats()[0].unacked_messages

        await until(lambda: unacked() == 2, "the limit is reached")
        await _set_policies(scene, **{limit: 4})
        await until(lambda: unacked() == 4, "more are delivered")
        await _set_policies(scene, **{limit: 3})
        await _set_policies(scene, **{limit: 0})
        await until(lambda: unacked() == 6, "all are delivered")
