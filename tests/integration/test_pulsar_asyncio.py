"""pulsar.asyncio, as it comes, on a real standalone.

With MAGNETAR_TEST_PULSAR_URL the same runs on another server (tests/stock_clients.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pulsar
import pytest
from pulsar import CompressionType, ConsumerType, MessageId
from pulsar.asyncio import Client, Consumer, Producer, PulsarException, Reader

from tests.running import within
from tests.stock_clients import EARLIEST, QUIET, StockServer, topic

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow


@asynccontextmanager
async def client_of(server: StockServer) -> AsyncIterator[Client]:
    client = Client(server.url, logger=QUIET)
    try:
        yield client
    finally:
        await client.close()


async def receive(consumer: Consumer, count: int) -> list[pulsar.Message]:
    return [await within(consumer.receive(), "a message") for _ in range(count)]


async def nothing_more(consumer: Consumer) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await consumer.receive()


def numbers(*which: int) -> list[bytes]:
    return [b"%d" % number for number in which]


async def send(producer: Producer, *which: int) -> list[pulsar.MessageId]:
    """At once, so that they are gathered into batches."""
    return await asyncio.gather(*(producer.send(content) for content in numbers(*which)))


@pytest.mark.parametrize("options", [{}, {"compression_type": CompressionType.ZSTD}, {"batching_enabled": False}])
async def test_messages_are_sent_and_received_in_order(server: StockServer, options: dict[str, Any]) -> None:
    """WIRE-1, PRD-1, CON-2: many at once, with all fields, acknowledged in their order."""
    async with client_of(server) as client:
        name = topic("async")
        producer = await client.create_producer(name, producer_name="p", properties={"a": "b"}, **options)
        assert (producer.topic(), producer.producer_name()) == (name, "p")
        ids = await send(producer, *range(100))
        assert ids == sorted(ids)
        fields = {"properties": {"x": "y"}, "partition_key": "k", "ordering_key": "o", "event_timestamp": 7}
        await producer.send(b"full", **fields)
        assert producer.last_sequence_id() == 100
        consumer = await client.subscribe(name, "s", consumer_name="c", **EARLIEST)
        assert (consumer.subscription_name(), consumer.consumer_name()) == ("s", "c")
        messages = await receive(consumer, 101)
        assert [message.data() for message in messages] == [*numbers(*range(100)), b"full"]
        full = messages[-1]
        assert (full.properties(), full.partition_key(), full.ordering_key()) == ({"x": "y"}, "k", "o")
        assert full.event_timestamp() == 7
        last = await consumer.get_last_message_id()
        assert last.entry_id() == full.message_id().entry_id()
        await producer.flush()
        await producer.close()
        assert not producer.is_connected()


async def test_acknowledging(server: StockServer) -> None:
    """WIRE-1, CON-3, CON-5: each, up to one, by id; what is refused comes again."""
    async with client_of(server) as client:
        name = topic("async-acks")
        producer = await client.create_producer(name, batching_enabled=False)
        await send(producer, *range(6))
        consumer = await client.subscribe(
            name, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=100, **EARLIEST
        )
        messages = await receive(consumer, 6)
        await asyncio.gather(*(consumer.acknowledge(message) for message in messages[:2]))
        await consumer.acknowledge(messages[2].message_id())
        await consumer.negative_acknowledge(messages[3])
        [again] = await receive(consumer, 1)
        assert (again.data(), again.redelivery_count()) == (b"3", 1)
        await consumer.close()
        ordered = await client.subscribe(name, "s")
        messages = await receive(ordered, 3)
        assert [message.data() for message in messages] == numbers(3, 4, 5)
        ordered.redeliver_unacknowledged_messages()
        assert [message.data() for message in await receive(ordered, 3)] == numbers(3, 4, 5)
        await ordered.acknowledge_cumulative(messages[1])
        await ordered.close()
        ordered = await client.subscribe(name, "s")
        assert [message.data() for message in await receive(ordered, 1)] == numbers(5)
        await ordered.unsubscribe()
        reopened = await client.subscribe(name, "s")
        await nothing_more(reopened)


async def test_seeking_and_reading(server: StockServer) -> None:
    """WIRE-1, SUB-9, CON-11."""
    async with client_of(server) as client:
        name = topic("async-seek")
        producer = await client.create_producer(name)
        await send(producer, *range(5))
        consumer = await client.subscribe(name, "s", **EARLIEST)
        messages = await receive(consumer, 5)
        reader: Reader = await client.create_reader(name, MessageId.earliest, reader_name="r")
        assert (reader.topic(), reader.is_connected()) == (name, True)
        for target, first in ((messages[2].message_id(), 3), (1, 0)):
            opened = target if isinstance(target, int) else MessageId.wrap(target)
            await consumer.seek(opened)
            again = await receive(consumer, 5 - first)
            assert [message.data() for message in again] == numbers(*range(first, 5))
            await reader.seek(opened)
            found = []
            while await reader.has_message_available():
                found.append((await within(reader.read_next(), "a message")).data())
            assert found == numbers(*range(first, 5))
        await reader.close()


async def test_partitions_and_lists(server: StockServer) -> None:
    """WIRE-1, PRD-6, SUB-8."""
    async with client_of(server) as client:
        partitioned = await asyncio.to_thread(server.make_partitioned, topic("async-partitioned"), 2)
        other = topic("async-other")
        assert len(await client.get_topic_partitions(partitioned)) == 2
        consumer = await client.subscribe([partitioned, other], "s", ConsumerType.Shared)
        producers = [await client.create_producer(name) for name in (partitioned, other)]
        for producer in producers:
            await send(producer, *range(20))
        messages = await receive(consumer, 40)
        assert sorted(message.data() for message in messages) == sorted(numbers(*range(20)) * 2)
        for message in messages:
            await consumer.acknowledge(message)
        routed = await client.create_producer(partitioned, message_router=lambda message, count: 1)
        assert (await routed.send(b"x")).partition() == 1
        [message] = await receive(consumer, 1)
        assert message.topic_name() == f"{partitioned}-partition-1"


async def test_busy_and_closed_errors_raise_their_result_codes(server: StockServer) -> None:
    """WIRE-1: with the library's own results."""
    async with client_of(server) as client:
        name = topic("async-refused")
        opened = await client.create_producer(name, producer_name="p"), await client.subscribe(name, "s")
        with pytest.raises(PulsarException) as taken:
            await client.create_producer(name, producer_name="p")
        assert taken.value.error() == pulsar.Result.ProducerBusy
        with pytest.raises(PulsarException) as busy:
            await client.subscribe(name, "s")
        assert busy.value.error() == pulsar.Result.ConsumerBusy
        assert all(one.topic() == name for one in opened)
        waiting = await client.subscribe(name, "other")
        receiving = asyncio.create_task(waiting.receive())
        await waiting.close()
        with pytest.raises(PulsarException) as closed:
            await within(receiving, "the end of it")
        assert closed.value.error() == pulsar.Result.AlreadyClosed
