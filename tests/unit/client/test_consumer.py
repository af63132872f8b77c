"""Consumers, from `subscribe` to `close`, with a broker whose subscriptions are the real ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar import ConsumerBatchReceivePolicy, ConsumerType, InitialPosition, MessageId
from magnetar.exceptions import CumulativeAcknowledgementNotAllowedError, Timeout
from tests.running import until
from tests.unit.client.consume_scene import client_of, payloads, receive

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}


async def test_messages_come_in_order_and_say_what_they_are() -> None:
    """CON-2, CON-8"""
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


async def test_a_receive_waits_and_gives_up_in_time() -> None:
    """CON-2"""
    async with client_of() as (broker, client):
        consumer = await client.subscribe("t", "s")
        with pytest.raises(Timeout):
            await consumer.receive(10)
        waiting = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        broker.topic("t").publish(b"late")
        assert (await waiting).data() == b"late"


async def test_a_cancelled_receive_loses_nothing() -> None:
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


async def test_a_batch_that_can_not_be_completed_is_what_there_is() -> None:
    """CON-2: more messages than the queue holds are never waited for."""
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


async def test_acknowledgements_are_gathered_and_merged() -> None:
    """CON-3, CON-4"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(10):
            topic.publish(str(number).encode())
        topic.publish(b"a", b"b", b"c")
        topic.publish(b"d", b"e", b"f")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await receive(consumer, 16)
        for message in messages[:6] + messages[7:14]:
            await consumer.acknowledge(message)
        cursor = topic.cursors.cursors["s"]
        await until(lambda: len(cursor.done) == 10 and bool(cursor.part), "acknowledgements have come")
        [request] = [one for one in broker.requests if one.acknowledge]
        [one] = request.acknowledge
        assert [(r.first_entry_id, r.last_entry_id) for r in one.entries] == [(0, 5), (7, 10)]
        assert [(b.entry_id, b.messages, b.batch_size) for b in one.messages] == [(11, b"\x01", 3)]
        await consumer.acknowledge([messages[6], messages[14], messages[15].message_id()], receipt=True)
        assert cursor.mark_delete == topic.log.last


async def test_closing_sends_what_is_acknowledged() -> None:
    """CON-3"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        topic.publish(b"a", b"b")
        consumer = await client.subscribe("t", "s", **EARLIEST, ack_grouping_time_ms=1e9)
        first, second = await receive(consumer, 2)
        await consumer.acknowledge(first)
        await consumer.close()
        assert topic.cursors.cursors["s"].part == {topic.log.last: 1}
        consumer = await client.subscribe("t", "s")
        [again] = await receive(consumer, 1)
        assert again.data() == second.data() == b"b"


async def test_cumulative_acknowledgement_keeps_the_highest() -> None:
    """CON-3, CON-4"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(5):
            topic.publish(str(number).encode())
        topic.publish(b"a", b"b", b"c")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await receive(consumer, 8)
        await consumer.acknowledge_cumulative(messages[6])
        await consumer.acknowledge_cumulative(messages[2])
        await consumer.acknowledge(messages[1])
        await consumer.acknowledge_cumulative(messages[3], receipt=True)
        cursor = topic.cursors.cursors["s"]
        assert cursor.mark_delete == topic.log.order[4]
        assert cursor.part == {topic.log.last: 0b11}
        sent = [one for request in broker.requests for one in request.acknowledge]
        assert len(sent) == 1


async def test_a_cumulative_acknowledgement_of_a_shared_subscription_is_refused() -> None:
    """CON-3, SUB-4"""
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"a")
        consumer = await client.subscribe("t", "s", ConsumerType.Shared, **EARLIEST)
        [message] = await receive(consumer, 1)
        with pytest.raises(CumulativeAcknowledgementNotAllowedError):
            await consumer.acknowledge_cumulative(message)
