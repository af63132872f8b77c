"""Statistics of topics over HTTP and gRPC."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

import magnetar
from magnetar import aio
from magnetar.admin import AsyncAdmin
from magnetar.exceptions import TopicNotFound
from magnetar_broker.broker_session import sample_topic
from magnetar_protos.broker_pb2 import OpenProducer
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.entry import encode_entry
from magnetar_wire.topic_name import TopicName
from tests.running import until
from tests.unit.broker.http.admin_scene import HttpScene, running_http
from tests.unit.broker.topic_scene import FakeProducerSink

TOPIC: Final = "persistent/public/default/orders"


async def _send(client: aio.Client, topic: str, *values: bytes, **options: Any) -> None:
    """Publish the values as one batch."""
    producer = await client.create_producer(
        topic, batching_max_messages=len(values), batching_max_publish_delay_ms=10_000, **options
    )
    await asyncio.gather(*[producer.send(value) for value in values])
    await producer.close()


async def _sample(scene: HttpScene, seconds: float) -> None:
    """Compute the topic's rates as if that many seconds had passed since the last sample."""
    topic = scene.broker.broker_session.topics.get_loaded(TopicName.parse("orders"))
    assert topic is not None
    sample_topic(topic, 1e9 + seconds)


async def test_messages_and_rates_are_counted() -> None:
    """ADM-1: the same numbers over HTTP and gRPC."""
    async with running_http(stats_update_frequency_in_secs=3600) as scene:
        admin: AsyncAdmin = scene.broker.admin
        await admin.topics.create("orders")
        client = scene.broker.client()
        consumer = await client.subscribe("orders", "s", aio.ConsumerType.Shared, receiver_queue_size=20)
        began_ms = scene.broker.clock.time_ms()
        await _sample(scene, 0)
        await _send(client, "orders", *[b"x"] * 10)
        messages = [await consumer.receive() for _ in range(10)]
        await consumer.acknowledge(messages[0])
        consumer.redeliver_unacknowledged_messages()
        for _ in range(9):
            await consumer.receive()
        await _sample(scene, 2)
        stats = await scene.get(f"{TOPIC}/stats")
        assert (stats["msgInCounter"], stats["entriesInCounter"], stats["msgOutCounter"]) == (10, 1, 20)
        assert (stats["msgRateIn"], stats["msgRateOut"]) == (5.0, 10.0)
        assert stats["averageMsgSize"] == stats["msgThroughputIn"] / 5.0 > 1
        assert stats["lastPublishTimeStamp"] >= began_ms
        assert stats["earliestMsgPublishTimeInBacklogs"] == stats["lastPublishTimeStamp"]
        assert (stats["oldestBacklogMessageSubscriptionName"], stats["oldestBacklogMessageAgeSeconds"]) == ("s", 0)
        assert (stats["ownerBroker"], stats["msgChunkPublished"], stats["publishers"]) == (scene.address, False, [])
        one = stats["subscriptions"]["s"]
        assert (one["msgBacklog"], one["backlogMessages"], one["unackedMessages"], one["type"]) == (1, 9, 9, "Shared")
        assert (one["msgRateRedeliver"], one["messageAckRate"], one["redeliveredMessages"]) == (5.0, 0.5, 10)
        assert one["backlogSize"] == stats["backlogSize"] == stats["storageSize"] > 0
        assert one["lastMarkDeleteAdvancedTimestamp"] == 0
        times = [one["lastConsumedFlowTimestamp"], one["lastConsumedTimestamp"], one["lastAckedTimestamp"]]
        assert all(began_ms <= time_ms <= scene.broker.clock.time_ms() for time_ms in times)
        (reads,) = one["consumers"]
        assert (reads["messageAckRate"], reads["msgRateRedeliver"], reads["avgMessagesPerEntry"]) == (0.5, 5.0, 10)
        native = await admin.topics.stats("orders")
        subscription = native.subscription("s")
        assert (native.received.messages_per_s, native.last_publish_ms) == (5.0, stats["lastPublishTimeStamp"])
        assert (subscription.redelivered_per_s, subscription.acknowledged_per_s) == (5.0, 0.5)
        assert subscription.backlog_since_ms == native.oldest_backlog_ms == native.last_publish_ms
        for message in messages:
            await consumer.acknowledge(message)
        await consumer.close()
        one = (await scene.get(f"{TOPIC}/stats"))["subscriptions"]["s"]
        assert (one["type"], one["msgBacklog"], one["backlogSize"], one["consumers"]) == ("None", 0, 0, [])
        assert one["lastMarkDeleteAdvancedTimestamp"] == one["lastAckedTimestamp"] > 0
        await client.close()


async def test_a_subscription_with_too_many_unacknowledged_messages_is_blocked() -> None:
    """ADM-3: at the limit of the consumer, and of the subscription."""
    for limit, blocked in (("consumer", (True, False)), ("subscription", (False, True))):
        async with running_http(**{f"max_unacked_messages_per_{limit}": 2}) as scene:
            await scene.broker.admin.topics.create("orders")
            client = scene.broker.client()
            consumer = await client.subscribe("orders", "s", aio.ConsumerType.Shared)
            await _send(client, "orders", b"1", b"2", b"3")
            await consumer.receive()
            one = (await scene.get(f"{TOPIC}/stats"))["subscriptions"]["s"]
            shown = one["consumers"][0]["blockedConsumerOnUnackedMsgs"], one["blockedSubscriptionOnUnackedMsgs"]
            assert shown == blocked, limit
            same = (await scene.broker.admin.topics.stats("orders")).subscription("s")
            assert (same.consumers[0].blocked_on_unacknowledged, same.blocked_on_unacknowledged) == blocked
            await consumer.close()
            await client.close()


async def test_access_modes_of_producers_are_shown() -> None:
    """ADM-1, PRD-2: with the number of those that wait, also of a partitioned topic, and the topic epoch."""
    async with running_http() as scene:
        await scene.broker.admin.topics.create_partitioned("orders", 2)
        client = scene.broker.client()
        mode = magnetar.ProducerAccessMode
        await client.create_producer("orders", access_mode=mode.ExclusiveWithFencing)
        waiting = asyncio.create_task(client.create_producer("orders", access_mode=mode.WaitForExclusive))
        topics = scene.broker.broker_session.topics
        await until(lambda: any(one.producers.queued for one in topics.loaded()), "it waits")
        stats = await scene.get(f"{TOPIC}/partitioned-stats")
        assert [one["accessMode"] for one in stats["publishers"]] == ["ExclusiveWithFencing"]
        assert stats["waitingPublishers"] == 1
        native = await scene.broker.admin.topics.stats("orders-partition-0")
        assert (native.producers[0].access_mode, native.waiting_producers) == ("ExclusiveWithFencing", 1)
        assert native.topic_epoch == (await scene.get(f"{TOPIC}-partition-0/stats"))["topicEpoch"] == 0
        await client.create_producer("shared")
        assert (await scene.broker.admin.topics.stats("shared")).topic_epoch is None
        waiting.cancel()
        await client.close()


async def test_chunks_are_counted() -> None:
    """ADM-1, PRD-8: `chunkedMessageRate`."""
    async with running_http(stats_update_frequency_in_secs=3600) as scene:
        await scene.broker.admin.topics.create("orders")
        client = scene.broker.client()
        consumer = await client.subscribe("orders", "s")
        topic = scene.broker.broker_session.topics.loaded()[0]
        producer = await topic.producers.open(OpenProducer(producer_name="p"), FakeProducerSink())
        await _sample(scene, 0)
        chunks = [
            MessageMetadata(
                producer_name="p",
                sequence_id=0,
                publish_time=1,
                uuid="u",
                num_chunks_from_msg=3,
                chunk_id=number,
                total_chunk_msg_size=3,
            )
            for number in range(3)
        ]
        producer.publish(0, [encode_entry(chunk, b"x") for chunk in chunks])
        await producer.settled()
        await until(lambda: topic.subscriptions.deliveries.delivered.entries == 3, "the chunks are delivered")
        await _sample(scene, 2)
        stats = await scene.get(f"{TOPIC}/stats")
        assert (stats["msgChunkPublished"], stats["chunks"]) == (True, 3)
        one = stats["subscriptions"]["s"]
        rates = [shown["chunkedMessageRate"] for shown in (stats["publishers"][0], one, one["consumers"][0])]
        assert rates == [1.5, 1.5, 1.5]
        native = await scene.broker.admin.topics.stats("orders")
        assert (native.chunks, native.producers[0].chunks_per_s, native.subscription("s").chunks_per_s) == (3, 1.5, 1.5)
        await consumer.close()
        await client.close()


async def test_clients_can_be_left_out() -> None:
    """ADM-1: over HTTP and gRPC."""
    async with running_http() as scene:
        admin: AsyncAdmin = scene.broker.admin
        await admin.topics.create("orders")
        client = scene.broker.client()
        producer = await client.create_producer("orders", properties={"a": "b"})
        consumer = await client.subscribe("orders", "s", properties={"c": "d"})

        async def count(query: str) -> tuple[int, int]:
            stats = await scene.get(f"{TOPIC}/stats{query}")
            return len(stats["publishers"]), len(stats["subscriptions"]["s"]["consumers"])

        assert await count("") == await count("?excludePublishers=false&getPreciseBacklog=true") == (1, 1)
        assert await count("?excludePublishers=true") == (0, 1)
        assert await count("?excludeConsumers=true&subscriptionBacklogSize=false") == (1, 0)
        less = await admin.topics.stats("orders", exclude_producers=True, exclude_consumers=True)
        assert (less.producers, less.subscription("s").consumers) == ([], [])
        assert (await scene.ask("GET", f"{TOPIC}/stats?excludePublishers=7")).status == 400
        assert (await scene.ask("GET", "persistent/public/default/no/stats")).status == 404
        for opened in (producer, consumer, client):
            await opened.close()


async def test_partitions_are_summed_and_shown() -> None:
    """ADM-1: over HTTP and gRPC."""
    async with running_http() as scene:
        admin: AsyncAdmin = scene.broker.admin
        await admin.topics.create_partitioned("orders", 2)
        await admin.subscriptions.create("orders", "s")
        client = scene.broker.client()
        producer = await client.create_producer("orders-partition-1")
        await _send(client, "orders-partition-0", b"1", b"2", b"3")
        await _send(client, "orders-partition-1", b"4")
        stats = await scene.get(f"{TOPIC}/partitioned-stats")
        assert stats["metadata"] == {"partitions": 2, "deleted": False}
        assert (stats["msgInCounter"], stats["subscriptions"]["s"]["msgBacklog"]) == (4, 2)
        parts = stats["partitions"]
        assert list(parts) == [f"persistent://public/default/orders-partition-{number}" for number in range(2)]
        assert [one["msgInCounter"] for one in parts.values()] == [3, 1]
        assert [len(one["publishers"]) for one in parts.values()] == [0, 1]
        sizes = [one["subscriptions"]["s"]["backlogSize"] for one in parts.values()]
        assert stats["subscriptions"]["s"]["backlogSize"] == stats["backlogSize"] == sum(sizes)
        first = parts["persistent://public/default/orders-partition-0"]["earliestMsgPublishTimeInBacklogs"]
        assert stats["earliestMsgPublishTimeInBacklogs"] == first > 0
        assert (await scene.get(f"{TOPIC}/partitioned-stats?perPartition=false"))["partitions"] == {}
        # Pulsar has no statistics of partitioned topics there.
        assert (await scene.ask("GET", f"{TOPIC}/stats")).status == 404
        assert (await scene.get(f"{TOPIC}/stats?sums=true"))["msgInCounter"] == 4
        assert (await scene.ask("GET", f"{TOPIC}/stats?sums=all")).status == 400
        for both in (admin, scene.admin):
            assert (await both.topics.stats("orders")).received.messages == 4
        whole = await client.create_producer("orders", producer_name="whole")
        reads = await client.subscribe("orders", "s", consumer_name="reads", receiver_queue_size=10)
        stats = await scene.get(f"{TOPIC}/partitioned-stats")
        assert sorted(one["producerName"] for one in stats["publishers"]) == sorted([producer.producer_name(), "whole"])
        (consumer,) = stats["subscriptions"]["s"]["consumers"]
        shown = [part["subscriptions"]["s"]["consumers"][0] for part in stats["partitions"].values()]
        assert (consumer["consumerName"], consumer["msgOutCounter"]) == ("reads", 4)
        assert consumer["availablePermits"] == sum(one["availablePermits"] for one in shown)
        assert (await scene.get(f"{TOPIC}/partitioned-stats?excludePublishers=true"))["publishers"] == []
        await whole.close()
        await reads.close()
        found = await admin.topics.partitioned_stats("orders")
        assert [one.received.messages for one in (found.stats, *found.partitions)] == [4, 3, 1]
        assert (await admin.topics.partitioned_stats("orders", per_partition=False)).partitions == []
        assert (await scene.ask("GET", f"{TOPIC}-partition-0/partitioned-stats")).status == 404
        with pytest.raises(TopicNotFound):
            await admin.topics.partitioned_stats("orders-partition-0")
        assert (await scene.ask("GET", "persistent/public/default/no/partitioned-stats")).status == 404
        await producer.close()
        await client.close()
