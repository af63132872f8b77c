"""Permits: they fill the receiver queue, never more, and no consumer waits forever."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from magnetar import ConsumerType, InitialPosition
from magnetar._prefetching.permits import Permits
from magnetar.exceptions import InvalidConfiguration, Timeout
from tests.running import until
from tests.unit.client.consume_scene import MemoryBroker, client_of, payloads, receive

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}


def delivered_to(consumer: Any) -> int:
    part = consumer._core.partitions[0]
    return int(part.permits.queued)


async def test_the_queue_is_filled_and_refilled_when_half_is_missing() -> None:
    """CON-1"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(3000):
            topic.publish(str(number).encode())
        consumer = await client.subscribe("t", "s", **EARLIEST)
        await until(lambda: delivered_to(consumer) == 1000, "the queue is full")
        await asyncio.sleep(0.02)
        assert delivered_to(consumer) == 1000
        await receive(consumer, 400)
        await asyncio.sleep(0.02)
        granted = [flow.permits for one in broker.requests for flow in one.flow]
        assert sum(granted) == 1000
        await receive(consumer, 120)  # counted in runs
        await until(lambda: sum(f.permits for one in broker.requests for f in one.flow) > 1000, "it is refilled")
        granted = [flow.permits for one in broker.requests for flow in one.flow]
        assert granted[-1] >= 500
        assert payloads(await receive(consumer, 2480))[-1] == b"2999"


async def test_without_a_queue_one_message_is_requested_at_a_time() -> None:
    """CON-1"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(5):
            topic.publish(str(number).encode())
        topic.publish(b"a", b"b", b"c")
        topic.publish(b"end")
        consumer = await client.subscribe("t", "s", **EARLIEST, receiver_queue_size=0)
        other = await client.subscribe("u", "s", **EARLIEST, receiver_queue_size=0)
        await asyncio.sleep(0.02)
        assert not any(one.flow for one in broker.requests)
        for number in range(5):
            assert (await consumer.receive()).data() == str(number).encode()
            await asyncio.sleep(0)
            assert sum(f.permits for one in broker.requests for f in one.flow) == number + 1
            assert delivered_to(consumer) <= 1
        assert payloads(await receive(consumer, 4)) == [b"a", b"b", b"c", b"end"]
        broker.partitioned["persistent://public/default/p"] = 2
        with pytest.raises(InvalidConfiguration):
            await client.subscribe("p", "s", receiver_queue_size=0)
        with pytest.raises(InvalidConfiguration, match="the retry letter topic persistent://public/default/t-s-RETRY"):
            await client.subscribe("t", "s", ConsumerType.Shared, enable_retry=True, receiver_queue_size=0)
        assert other.is_connected()


async def test_fewer_large_messages_are_requested() -> None:
    """CON-1: as many as are expected to take receiver_queue_bytes."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(300):
            topic.publish(bytes([number % 256]) * 10_000)
        consumer = await client.subscribe("t", "s", **EARLIEST, receiver_queue_bytes=300_000)
        await until(lambda: delivered_to(consumer) >= 16, "as many were delivered as there is capacity for")
        await asyncio.sleep(0.02)
        assert delivered_to(consumer) <= 31
        assert payloads(await receive(consumer, 300))[-1] == bytes([299 % 256]) * 10_000


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
@pytest.mark.parametrize("queue_size", [0, 1, 2, 7, 50])
async def test_a_consumer_is_never_stuck(kind: ConsumerType, queue_size: int) -> None:
    """CON-1, CON-4, CON-5: with any acknowledgements, nacks and disconnects, all messages are received."""
    chance = random.Random(f"{kind}{queue_size}")
    async with client_of(MemoryBroker()) as (broker, client):
        topic = broker.topic("t")
        expected = set()
        for number in range(120):
            payloads = [b"%d.%d" % (number, at) for at in range(chance.choice([1, 1, 2, 5, 20]))]
            topic.publish(*payloads, batch=chance.random() < 0.5)
            expected |= set(payloads)
        consumer = await client.subscribe(
            "t", "s", kind, **EARLIEST, receiver_queue_size=queue_size, negative_ack_redelivery_delay_ms=1
        )
        seen: set[bytes] = set()
        acknowledged: set[bytes] = set()
        cursor = topic.cursors.cursors["s"]
        # A message is redelivered if its acknowledgement, without a receipt, was lost with its stream.
        while cursor.mark_delete != topic.log.last:
            try:  # dropped messages are redelivered on request, all others without one
                message = await consumer.receive(50 if seen == expected else 30_000)
            except Timeout:
                assert seen == expected
                consumer.redeliver_unacknowledged_messages()
                continue
            seen.add(message.data())
            what = chance.random()
            if what < 0.8:
                await consumer.acknowledge(message, receipt=what < 0.05)
                acknowledged.add(message.data())
            elif what < 0.9:
                await consumer.negative_acknowledge(message)
            elif what < 0.91:
                consumer.redeliver_unacknowledged_messages()
            elif what < 0.913:
                broker.break_streams()
            elif what < 0.93:
                receiving = asyncio.create_task(consumer.receive())
                await asyncio.sleep(0)
                receiving.cancel()
                await asyncio.wait([receiving])
                if not receiving.cancelled():
                    await consumer.negative_acknowledge(receiving.result())
        await consumer.close()
        assert acknowledged == seen == expected


async def test_client_and_broker_count_the_same_permits() -> None:
    """CON-1: with batches larger than the permits left, partly acknowledged entries, and redelivery by entry."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        consumer = await client.subscribe("t", "s", ConsumerType.Shared, **EARLIEST, receiver_queue_size=10)
        for number in range(30):
            topic.publish(*[b"%d.%d" % (number, at) for at in range(number % 13 + 1)])
        got = await receive(consumer, 60)
        await consumer.acknowledge(got[:55:2], receipt=True)
        consumer.redeliver_unacknowledged_messages()
        await receive(consumer, 100)

        def alike() -> bool:
            part = consumer._core.partitions[0]
            [theirs] = topic.subscriptions.stats()[0].consumers
            return bool(theirs.permits == part.permits.outstanding)

        await until(alike, "both count the same")


def test_the_window_follows_the_size_of_recent_messages() -> None:
    permits = Permits(1000, 1_000_000)
    assert permits.grant() == 16
    permits.count_delivered(1, 1, 100)
    assert permits.window == 1000
    assert permits.grant() == 1000 - 16
    for _ in range(100):
        permits.count_delivered(1, 1, 100_000)
    assert permits.window == 10
    assert permits.grant() == 0
    permits.count_handed_out(101)
    assert permits.outstanding == 1000 - 101
    permits.start_epoch()
    assert permits.grant() == 10
    assert permits.grant(eager=True) == 0
    permits.count_delivered(25, 25, 100_000 * 25)
    permits.count_handed_out(4)
    assert permits.grant() == 0
    permits.count_handed_out(21)
    assert permits.grant() == 25
