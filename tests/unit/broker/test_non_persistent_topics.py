"""Non-persistent topics through both listeners: our own by the SDK, Pulsar's by frames.

`Connected` is one client of either listener, so that each test runs with both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

import magnetar
from magnetar import ConsumerType, MessageId, aio, exceptions
from magnetar.admin import NamespacePolicies, TopicPolicies
from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.managed_ledger.topic_node import NewTopic
from magnetar_broker.topics import policy_refresh
from magnetar_broker.topics.non_persistent.topic_node import NonPersistentTopicNode
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandRedeliverUnacknowledgedMessages,
    ServerError,
)
from magnetar_wire.entry import decode_entry
from magnetar_wire.hashing import KEY_SHARED_SLOTS, NO_KEY, key_shared_slot
from magnetar_wire.randomness import SystemRandomness
from magnetar_wire.topic_name import TopicName
from tests.produce_client import entry
from tests.running import until
from tests.unit.broker.admin.many_brokers import admins
from tests.unit.broker.cluster_scene import ClusterScene, running_brokers
from tests.unit.broker.pulsar.pulsar_client import PulsarClient, sent
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, running_pulsar_broker

TOPIC = "non-persistent://public/default/t"
NAME = TopicName.parse(TOPIC)
# Numbers of the types in Pulsar's protocol.
_TYPES = {"Exclusive": 0, "Shared": 1, "Failover": 2, "KeyShared": 3}
_LISTENERS = ("grpc", "pulsar")


@dataclass
class Connected:
    """A producer and consumers of the topic. A consumer that is opened with `permits` gets no more than these."""

    scene: PulsarScene
    sdk: aio.Client
    # None: it uses our own listener.
    pulsar: PulsarClient | None
    producer: Any = None
    consumers: dict[str, Any] = field(default_factory=dict)
    # By the consumers' names, of our own listener.
    received: dict[str, list[bytes]] = field(default_factory=dict)
    published: int = 0

    async def subscribe(
        self, consumer: str, subscription: str = "s", kind: str = "Exclusive", permits: int = 0
    ) -> None:
        if self.pulsar is None:
            size = permits or 1000
            self.consumers[consumer] = await self.sdk.subscribe(
                TOPIC, subscription, ConsumerType[kind], consumer_name=consumer, receiver_queue_size=size
            )
            self.received[consumer] = []
            await until(lambda: _permits(self.scene, consumer) == size, "the permits are granted")
            return
        consumer_id = len(self.consumers) + 1
        await self.pulsar.subscribe(
            consumer_id, TOPIC, subscription, sub_type=_TYPES[kind], consumer_name=consumer, permits=permits or 1000
        )
        self.consumers[consumer] = consumer_id

    async def publish(self, *payloads: bytes) -> list[tuple[int, int]]:
        """Publish messages in one piece, and return their positions."""
        if self.pulsar is None:
            if self.producer is None:
                self.producer = await self.sdk.create_producer(TOPIC, batching_enabled=False)
            sending = [asyncio.ensure_future(self.producer.send(one)) for one in payloads]
            ids = [await one for one in sending]
            return [(one.ledger_id(), one.entry_id()) for one in ids]
        if self.producer is None:
            self.producer = (await self.pulsar.open_producer(7, TOPIC)).producer_name
        first, self.published = self.published, self.published + len(payloads)
        self.pulsar.send_bytes(
            b"".join(sent(7, first + at, entry(first + at, one, self.producer)) for at, one in enumerate(payloads))
        )
        receipts = (await self.pulsar.receipts(7, self.published))[first:]
        return [(one.message_id.ledgerId, one.message_id.entryId) for one in receipts]

    async def payloads(self, consumer: str, count: int) -> list[bytes]:
        """Return all that the consumer has got, once that are `count` messages."""
        if self.pulsar is not None:
            delivered = await self.pulsar.wait_delivered(count, self.consumers[consumer])
            return [bytes(decode_entry(one.entry).payload) for one in delivered]
        received = self.received[consumer]
        while len(received) < count:
            received.append((await self.consumers[consumer].receive(60_000)).data())
        return received

    async def close(self, consumer: str) -> None:
        if self.pulsar is None:
            await self.consumers[consumer].close()
        else:
            await self.pulsar.close_consumer(self.consumers[consumer])


def _permits(scene: PulsarScene, consumer: str) -> int:
    topic = scene.broker_session.topics.get_loaded(NAME)
    if topic is None:
        return 0
    found = [one for stats in topic.subscriptions.stats() for one in stats.consumers if one.name == consumer]
    return found[0].permits if found else 0


@asynccontextmanager
async def connected(listener: str, **options: Any) -> AsyncIterator[Connected]:
    async with running_pulsar_broker(**options) as scene, scene.client() as sdk:
        yield Connected(scene, sdk, await scene.pulsar_client() if listener == "pulsar" else None)


async def dropped(scene: PulsarScene) -> dict[str, int]:
    stats = await scene.admin.topics.stats(TOPIC)
    return {one.subscription: one.dropped_messages for one in stats.subscriptions}


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_a_message_goes_to_connected_consumers_and_is_stored_nowhere(listener: str) -> None:
    """(TOP-5) Results come at once, also without consumers; ids ascend."""
    async with connected(listener) as client:
        before = await client.publish(b"nobody is there")
        await client.subscribe("a", "one")
        await client.subscribe("b", "two", "Shared")
        after = await client.publish(b"1", b"2", b"3")
        assert sorted({*before, *after}) == [*before, *after]
        assert await client.payloads("a", 3) == await client.payloads("b", 3) == [b"1", b"2", b"3"]
        stats = await client.scene.admin.topics.stats(TOPIC)
        assert (stats.received.messages, stats.storage_bytes, stats.backlog_bytes) == (4, 0, 0)
        assert all(not bookie.ledgers for bookie in client.scene.bookies)


@pytest.mark.parametrize("listener", _LISTENERS)
@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared", "KeyShared"])
async def test_what_a_consumer_has_no_permits_for_is_dropped_and_counted(listener: str, kind: str) -> None:
    """(TOP-5)"""
    async with connected(listener) as client:
        await client.subscribe("slow", kind=kind, permits=2)
        await client.subscribe("fast", "other", kind=kind)
        await client.publish(*(b"%d" % number for number in range(5)))
        assert len(await client.payloads("fast", 5)) == 5
        assert await client.payloads("slow", 2) == [b"0", b"1"]
        assert await dropped(client.scene) == {"s": 3, "other": 0}
        if client.pulsar is not None:
            client.pulsar.flow(client.consumers["slow"], 10)
        else:
            await until(lambda: _permits(client.scene, "slow") > 0, "the permits of received messages are granted")
        await client.publish(b"later")
        assert (await client.payloads("slow", 3))[2:] == [b"later"]


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_subscription_types_choose_the_consumer(listener: str) -> None:
    """(TOP-5) By the rules of persistent topics. The messages have no key, which is one key for Key_Shared."""
    async with connected(listener) as client:
        await client.subscribe("a", "shared", "Shared")
        await client.subscribe("b", "shared", "Shared")
        await client.subscribe("c", "failover", "Failover")
        await client.subscribe("d", "failover", "Failover")
        await client.subscribe("e", "keyed", "KeyShared")
        await client.subscribe("f", "keyed", "KeyShared")
        for number in range(4):
            await client.publish(b"%d" % number)
        assert sorted(await client.payloads("a", 2) + await client.payloads("b", 2)) == [b"0", b"1", b"2", b"3"]
        assert await client.payloads("c", 4) == [b"0", b"1", b"2", b"3"]
        lower = key_shared_slot(NO_KEY) < KEY_SHARED_SLOTS // 2
        first, second = "fe" if lower else "ef"
        assert await client.payloads(first, 4) == [b"0", b"1", b"2", b"3"]
        await client.close("c")
        await client.close(first)
        await client.publish(b"4")
        assert await client.payloads("d", 1) == [b"4"]
        assert await client.payloads(second, 1) == [b"4"]


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_other_consumers_are_refused_as_on_a_persistent_topic(listener: str) -> None:
    async with connected(listener) as client:
        await client.subscribe("a")
        if client.pulsar is None:
            with pytest.raises(exceptions.ConsumerBusy):
                await client.sdk.subscribe(TOPIC, "s")
            return
        client.pulsar.answers_pings = True
        busy = await client.pulsar.try_subscribe(8, TOPIC, "s")
        assert busy.error.error == ServerError.CONSUMER_BUSY


async def test_acknowledgements_nacks_and_seeks_of_the_sdk() -> None:
    """(TOP-5) Nothing is redelivered, and a nack loses nothing that is in the receiver queue."""
    async with connected("grpc") as client:
        await client.subscribe("a")
        await client.publish(b"1", b"2", b"3")
        consumer = client.consumers["a"]
        first = await consumer.receive(60_000)
        await consumer.acknowledge(first)
        await consumer.acknowledge_cumulative(first)
        await consumer.negative_acknowledge(first)
        consumer.redeliver_unacknowledged_messages()
        assert [(await consumer.receive(60_000)).data() for _ in range(2)] == [b"2", b"3"]
        with pytest.raises(exceptions.NotAllowedError, match="non-persistent"):
            await consumer.seek(MessageId.earliest)
        await client.publish(b"4")
        assert (await consumer.receive(60_000)).data() == b"4"
        await consumer.unsubscribe()
        assert await dropped(client.scene) == {}


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
async def test_acknowledgements_nacks_and_seeks_of_stock_clients(kind: str) -> None:
    """(TOP-5) As with the SDK; ids of all kinds are taken."""
    async with connected("pulsar") as client:
        await client.subscribe("a", kind=kind)
        [(ledger_id, entry_id)] = await client.publish(b"1")
        [delivered] = await client.pulsar.wait_delivered(1) if client.pulsar is not None else []
        assert (delivered.ledger_id, delivered.entry_id) == (ledger_id, entry_id)
        pulsar = client.pulsar
        assert pulsar is not None
        for position in ((ledger_id, entry_id), (0, 0), (2**63 - 1, 5)):
            message_id = MessageIdData(ledgerId=position[0], entryId=position[1])
            assert not (await pulsar.acknowledge(1, [message_id])).HasField("error")
        redeliver = CommandRedeliverUnacknowledgedMessages(consumer_id=1)
        pulsar.send(
            BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliver_unacknowledged_messages=redeliver)
        )
        refused = await pulsar.seek(1, message_id=MessageIdData(ledgerId=ledger_id, entryId=entry_id))
        assert (refused.error.error, "non-persistent" in refused.error.message) == (ServerError.NOT_ALLOWED_ERROR, True)
        await client.publish(b"2")
        assert await client.payloads("a", 2) == [b"1", b"2"]


async def test_readers_begin_with_the_next_message() -> None:
    """(TOP-5) Any position that they name stands for it."""
    async with connected("grpc") as client:
        [(ledger_id, entry_id)] = await client.publish(b"before")
        starts = (MessageId.earliest, MessageId.latest, MessageId(-1, ledger_id, entry_id, -1))
        readers = [await client.sdk.create_reader(TOPIC, start) for start in starts]
        assert not any([await reader.has_message_available() for reader in readers])
        await client.publish(b"after")
        assert [(await reader.read_next(60_000)).data() for reader in readers] == [b"after"] * 3


async def test_batches_compression_and_schemas_work_and_chunks_do_not() -> None:
    async with connected("pulsar") as client, client.scene.client() as sdk:
        schema = magnetar.schema.StringSchema()
        consumer = await sdk.subscribe(TOPIC, "typed", schema=schema)
        producer = await sdk.create_producer(
            TOPIC, schema=schema, batching_enabled=True, compression_type=magnetar.CompressionType.LZ4
        )
        sending = [asyncio.ensure_future(producer.send(f"text {number}")) for number in range(10)]
        assert len({(await one).entry_id() for one in sending}) < 10
        assert [(await consumer.receive(60_000)).value() for _ in range(10)] == [f"text {n}" for n in range(10)]
        with pytest.raises(exceptions.IncompatibleSchema):
            await sdk.create_producer(TOPIC, schema=magnetar.schema.Int32Schema())
        pulsar = client.pulsar
        assert pulsar is not None
        name = (await pulsar.open_producer(1, TOPIC)).producer_name
        chunk = entry(0, b"part", name, uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=8)
        pulsar.send_bytes(sent(1, 0, chunk))
        refused = await pulsar.wait_for_answers(BaseCommand.SEND_ERROR)
        assert refused.send_error.error == ServerError.NOT_ALLOWED_ERROR


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_clients_reconnect_when_the_topic_is_unloaded(listener: str) -> None:
    """(TOP-5) Also where they must not create it: a topic that is used does not vanish."""
    async with connected(listener, allow_auto_topic_creation=False) as client:
        admin = client.scene.admin
        await admin.topics.create(TOPIC)
        await client.subscribe("a")
        await client.publish(b"1")
        assert await client.payloads("a", 1) == [b"1"]
        await admin.topics.unload(TOPIC)
        if client.pulsar is None:
            await until(lambda: _permits(client.scene, "a") == 1000, "the consumer has subscribed again")
        else:
            await client.pulsar.wait_for_answers(BaseCommand.CLOSE_CONSUMER)
            answer = (await client.pulsar.lookup(TOPIC)).lookup_topic_response
            assert answer.response == CommandLookupTopicResponse.CONNECT
            client.pulsar.answers.clear()
            client.producer, client.published = None, 0
            await client.subscribe("b")
        await client.publish(b"2")
        if client.pulsar is None:
            assert await client.payloads("a", 2) == [b"1", b"2"]
        else:
            assert await client.payloads("b", 1) == [b"2"]


@pytest.mark.parametrize("listener", _LISTENERS)
async def test_a_flood_with_a_consumer_that_does_not_read_stays_within_its_bounds(listener: str) -> None:
    """(TOP-5) What its connection has no capacity for is dropped, though it has permits."""
    limit = 1 << 20
    async with connected(listener, max_queued_bytes=limit, max_queued_bytes_per_stream=limit) as client:
        other = await client.scene.pulsar_client()
        await other.subscribe(1, TOPIC, "stuck", permits=100_000)
        other.stop_reading()
        budget = client.scene.context.server.outbox_budget
        peak = 0
        for _ in range(40):
            await client.publish(*[bytes(100_000)] * 5)
            peak = max(peak, budget.queued_bytes)
        assert peak < 3 * limit
        assert (await dropped(client.scene))["stuck"] > 100
        assert client.scene.broker_session.budget.used_bytes == 0
        other.read_on()


async def test_an_unused_topic_vanishes() -> None:
    """(TOP-2, TOP-5) Whether inactive topics are deleted or not: nothing is lost with it."""
    options = {"topic_housekeeping_interval_seconds": 0.01}
    options["broker_delete_inactive_topics_max_inactive_duration_seconds"] = 0.05
    async with connected("grpc", **options) as client:
        admin, topics = client.scene.admin, client.scene.broker_session.topics
        await client.subscribe("a")
        await client.publish(b"1")
        listed = await client.scene.broker_session.catalog.list_topics(NAME.namespace_name)
        assert listed == [TOPIC]
        await client.close("a")
        await client.producer.close()
        await until(lambda: topics.get_loaded(NAME) is None, "it is unloaded")
        with pytest.raises(exceptions.TopicNotFound):
            await admin.topics.delete(TOPIC)
        assert await client.scene.broker_session.catalog.list_topics(NAME.namespace_name) == []


async def test_a_kind_of_topics_that_is_switched_off_is_refused() -> None:
    """`enable_non_persistent_topics`, `enable_persistent_topics`: both listeners."""
    for setting, topic, other in (
        ("enable_non_persistent_topics", TOPIC, "t"),
        ("enable_persistent_topics", "t", TOPIC),
    ):
        async with connected("pulsar", **{setting: False}) as client:
            with pytest.raises(exceptions.NotAllowedError, match=setting):
                await client.sdk.create_producer(topic)
            assert client.pulsar is not None
            refused = await client.pulsar.try_subscribe(1, topic)
            assert (refused.error.error, setting in refused.error.message) == (ServerError.NOT_ALLOWED_ERROR, True)
            await client.sdk.create_producer(other)


async def test_the_node_of_a_topic_follows_its_owners() -> None:
    """(TOP-5) The next owner replaces it, the former one does not delete it then, and it ends with its session."""
    async with connected("grpc") as client:
        catalog, metadata = client.scene.broker_session.catalog, client.scene.metadata
        stores = [metadata.connect(), metadata.connect()]
        old, new = (NonPersistentTopicNode(NAME, store, SystemRandomness()) for store in stores)
        epoch = await old.claim(NewTopic(properties={"k": b"v"}))
        await new.claim()
        assert await catalog.get_topic_properties(NAME) == {"k": "v"}
        await stores[0].close()
        assert await catalog.has_stored_topic(NAME)
        await new.release(epoch)
        assert await catalog.has_stored_topic(NAME)
        await stores[1].close()
        assert not await catalog.has_stored_topic(NAME)


async def test_an_exclusive_producer_and_the_limits_of_a_topic() -> None:
    """(TOP-5) Hooks of all topics: access modes, whose epoch is not stored, limits and rates, and deduplication, which
    has no effect."""
    options = {"max_consumers_per_topic": 1, "broker_deduplication_enabled": True}
    async with connected("grpc", **options) as client, client.scene.client() as other:
        first = await other.create_producer(TOPIC, access_mode=magnetar.ProducerAccessMode.Exclusive)
        with pytest.raises(exceptions.ProducerBusy):
            await client.sdk.create_producer(TOPIC)
        await client.subscribe("a")
        with pytest.raises(exceptions.ConsumerBusy):
            await client.sdk.subscribe(TOPIC, "other")
        await client.scene.admin.topics.unload(TOPIC)
        await until(lambda: _permits(client.scene, "a") == 1000, "the consumer has subscribed again")
        await first.send(b"1")
        assert await client.payloads("a", 1) == [b"1"]


async def test_another_broker_takes_a_topic_over() -> None:
    """(TOP-5) Clients go on there, and any broker lists the topic once."""
    async with running_brokers(2) as scene, admins(scene) as (one, two), scene.client() as client:
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.create_producer(TOPIC)
        for owner in ("b1", "b2", "b1"):
            bundle = await one.topics.bundle_range(TOPIC)
            await one.namespaces.unload("public/default", bundle, owner)
            await until(partial(_has_consumer, scene, owner), "the consumer has subscribed there")
            await producer.send(owner.encode())
            assert (await consumer.receive(60_000)).data() == owner.encode()
            for admin in (one, two):
                assert await admin.topics.list("public/default", domain="non-persistent") == [TOPIC]
        await consumer.close()
        await producer.close()


def _has_consumer(scene: ClusterScene, broker_id: str) -> bool:
    topic = scene[broker_id].broker_session.topics.get_loaded(NAME)
    return topic is not None and topic.subscriptions.consumers == 1


async def test_its_namespaces_and_its_own_policies_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """(TOP-4, TOP-5) To a loaded topic within seconds, and at once to one that had vanished."""
    monkeypatch.setattr(policy_refresh, "MIN_INTERVAL_S", 0.05)
    async with connected("grpc", metadata_cache_ttl_seconds=0.05) as client:
        admin, topics = client.scene.admin, client.scene.broker_session.topics
        first = await client.sdk.create_producer(TOPIC)
        loaded = topics.get_loaded(NAME)
        assert loaded is not None
        live = loaded.live_settings
        await admin.namespaces.change_policies("public/default", NamespacePolicies(max_producers_per_topic=1))
        await until(lambda: live.current.max_producers_per_topic == 1, "the namespace's policy applies")
        with pytest.raises(exceptions.ProducerBusy):
            await client.sdk.create_producer(TOPIC)
        await admin.topics.change_policies(TOPIC, TopicPolicies(max_producers_per_topic=2))
        await until(lambda: live.current.max_producers_per_topic == 2, "the topic's own policy applies")
        second = await client.sdk.create_producer(TOPIC)
        for producer in (first, second):
            await producer.close()
        await topics.unload(NAME, TopicUnloaded("idle"))
        assert await client.scene.broker_session.catalog.list_topics(NAME.namespace_name) == []
        for _ in range(2):
            await client.sdk.create_producer(TOPIC)
        with pytest.raises(exceptions.ProducerBusy):
            await client.sdk.create_producer(TOPIC)
        assert (await admin.topics.policies(TOPIC)).max_producers_per_topic == 2
