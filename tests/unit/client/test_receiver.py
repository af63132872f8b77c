"""Receiving messages and batches with asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar import ConsumerBatchReceivePolicy, InitialPosition, MessageId
from magnetar.exceptions import AlreadyClosed, Timeout
from tests.running import until
from tests.unit.client.consume_scene import client_of, core_of, payloads, receive

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}


async def test_messages_are_received_in_order_with_their_properties() -> None:
    """CON-2"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        topic.publish(b"one", time_ms=77, keys=["k"], properties=[{"a": "b"}], event_times=[5])
        topic.publish(b"two", None, b"")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        one, two, three, four = await receive(consumer, 4)
        assert payloads([one, two, three, four]) == [b"one", b"two", b"", b""]
        assert one.value() == b"one"
        assert one.properties() == {"a": "b"}
        assert two.properties() == {}
        assert (one.partition_key(), two.partition_key()) == ("k", "")
        assert (one.publish_timestamp(), one.event_timestamp(), one.broker_publish_timestamp()) == (1, 5, 77)
        assert [m.index() for m in (one, two, three, four)] == [0, 1, 2, 3]
        assert (three.has_null_value(), three.value()) == (True, None)
        assert (four.has_null_value(), four.value()) == (False, b"")
        assert one.message_id() == MessageId(-1, 7, 0, -1)
        assert three.message_id() == MessageId(-1, 7, 1, 1)
        assert three.message_id().batch_size() == 3
        assert one.topic_name() == consumer.topic() == "persistent://public/default/t"
        assert (one.redelivery_count(), one.producer_name(), two.sequence_id()) == (0, "p", 1)
        assert consumer.subscription_name() == "s"
        assert consumer.is_connected()
        assert consumer.consumer_name()


async def test_receive_waits_until_its_timeout() -> None:
    """CON-2"""
    async with client_of() as (broker, client):
        consumer = await client.subscribe("t", "s")
        with pytest.raises(Timeout):
            await consumer.receive(10)
        waiting = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        broker.topic("t").publish(b"late")
        assert (await waiting).data() == b"late"


async def test_a_cancelled_receive_loses_no_message() -> None:
    """CON-2"""
    async with client_of() as (broker, client):
        consumer = await client.subscribe("t", "s")
        got: list[bytes] = []
        for number in range(50):
            first, second = (asyncio.create_task(consumer.receive()) for _ in range(2))
            await asyncio.sleep(0)
            broker.topic("t").publish(str(number).encode())
            for _ in range(number % 12):  # at every step of its way
                await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            if first.cancelled():
                got.append((await second).data())
            else:
                got.append(first.result().data())
                second.cancel()
                await asyncio.wait([second])
                assert second.cancelled()
        assert got == [str(number).encode() for number in range(50)]


async def test_a_batch_ends_by_number_bytes_or_time() -> None:
    """CON-2"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for size, policy in {
            "number": ConsumerBatchReceivePolicy(5, -1, -1),
            "bytes": ConsumerBatchReceivePolicy(-1, 50, -1),
            "time": ConsumerBatchReceivePolicy(-1, -1, 20),
        }.items():
            consumer = await client.subscribe("t", size, batch_receive_policy=policy)
            if size == "time":
                assert await consumer.batch_receive() == []
            waiting = asyncio.create_task(consumer.batch_receive())
            await asyncio.sleep(0)
            topic.publish(b"a" * 10, b"b" * 10, b"c" * 10)
            if size != "time":
                topic.publish(b"d" * 10, b"e" * 10, b"f" * 10)
            expected = 3 if size == "time" else 5
            assert payloads(await waiting) == [bytes([97 + i]) * 10 for i in range(expected)]
            if size != "time":
                assert (await consumer.receive()).data() == b"f" * 10
            await consumer.close()


async def test_a_batch_does_not_wait_for_more_messages_than_the_queue_holds() -> None:
    """CON-2"""
    async with client_of() as (broker, client):
        policy = ConsumerBatchReceivePolicy(100, -1, -1)
        consumer = await client.subscribe("t", "s", batch_receive_policy=policy, receiver_queue_size=10)
        for number in range(30):
            broker.topic("t").publish(str(number).encode())
        got: list[bytes] = []
        while len(got) < 30:
            batch = payloads(await consumer.batch_receive())
            assert batch
            got += batch
        assert got == [str(number).encode() for number in range(30)]


@pytest.mark.parametrize("queue_size", [0, 4])
async def test_a_paused_consumer_requests_no_messages(queue_size: int) -> None:
    """CON-1, CON-2: also after it was reopened; what was requested before is received."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        consumer = await client.subscribe("t", "s", receiver_queue_size=queue_size)
        requested = queue_size
        consumer.pause()
        for number in range(6):
            topic.publish(b"%d" % number)
        assert payloads(await receive(consumer, requested)) == [b"%d" % number for number in range(requested)]
        waiting = asyncio.create_task(consumer.receive())
        await broker.unload("t")
        await until(consumer.is_connected, "it is reopened")
        assert core_of(consumer).partitions[0].permits.outstanding == 0
        assert not waiting.done()
        consumer.resume()
        assert (await waiting).data() == b"0"
        await consumer.close()
        with pytest.raises(AlreadyClosed):
            consumer.pause()
