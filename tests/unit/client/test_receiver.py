"""Receiving messages and batches with asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar import ConsumerBatchReceivePolicy, ConsumerInterceptor, InitialPosition, Message, MessageId
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


async def _receive_once(consumer: Any) -> list[Message]:
    return [await consumer.receive()]


async def _receive_in_time(consumer: Any) -> list[Message]:
    return [await consumer.receive(60_000)]


async def _wait_for_one(consumer: Any) -> list[Message]:
    return [await asyncio.wait_for(consumer.receive(), 60)]


async def _receive_within(consumer: Any) -> list[Message]:
    async with asyncio.timeout(60):
        return [await consumer.receive()]


async def _iterate(consumer: Any) -> list[Message]:
    return [await anext(aiter(consumer))]


async def _receive_batch(consumer: Any) -> list[Message]:
    batch: list[Message] = await consumer.batch_receive()
    return batch


FORMS = (_receive_once, _receive_in_time, _wait_for_one, _receive_within, _iterate, _receive_batch)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"receiver_queue_size": 0}, {"interceptors": [ConsumerInterceptor()]}])
async def test_a_receive_that_is_cancelled_anywhere_loses_no_message(form: Any, options: dict[str, Any]) -> None:
    """CON-2: `receive`, with and without a timeout, in `wait_for`, iteration, and batches of two; each is cancelled
    after each number of steps of the loop, while others wait, too. Every message is received once, in order."""
    async with client_of() as (broker, client):
        policy = ConsumerBatchReceivePolicy(2 if options.get("receiver_queue_size", 2) else 1, -1, -1)
        consumer = await client.subscribe("t", "s", batch_receive_policy=policy, **options)
        got: list[bytes] = []
        steps = range(14)
        for number in steps:
            first, second = (asyncio.create_task(form(consumer)) for _ in range(2))
            await asyncio.sleep(0)
            for half in (2 * number, 2 * number + 1):
                broker.topic("t").publish(b"%d" % half)
            for _ in range(number):
                await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            if not first.cancelled():
                got += payloads(first.result())
                second.cancel()
                await asyncio.wait([second])
            if first.cancelled() or not second.cancelled():
                got += payloads(await second)
            while len(got) < 2 * number + 2:
                got += payloads(await form(consumer))
        assert got == [b"%d" % number for number in range(2 * len(steps))]


async def test_a_message_that_arrives_while_a_receive_times_out_is_not_lost() -> None:
    """CON-2: by its own timeout, or by that of `wait_for`."""
    async with client_of() as (broker, client):
        consumer = await client.subscribe("t", "s")
        got: list[bytes] = []
        for number in range(40):
            receive_one = consumer.receive(1) if number % 2 else asyncio.wait_for(consumer.receive(), 0.001)
            waiting = asyncio.create_task(receive_one)
            asyncio.get_running_loop().call_later(0.0009 + number * 0.00001, broker.topic("t").publish, b"%d" % number)
            await asyncio.wait([waiting])
            if waiting.exception() is None:
                got.append(waiting.result().data())
            else:
                assert isinstance(waiting.exception(), Timeout | TimeoutError)
                got.append((await consumer.receive()).data())
        assert got == [b"%d" % number for number in range(40)]


@pytest.mark.parametrize("form", FORMS)
async def test_closing_ends_every_receive_and_loses_no_message(form: Any) -> None:
    """CON-2: what was not received is redelivered to the next consumer."""
    async with client_of() as (broker, client):
        policy = ConsumerBatchReceivePolicy(2, -1, -1)
        consumer = await client.subscribe("t", "s", batch_receive_policy=policy)
        waiting = [asyncio.create_task(form(consumer)) for _ in range(3)]
        await asyncio.sleep(0)
        broker.topic("t").publish(b"a")
        closing = asyncio.create_task(consumer.close())
        await asyncio.wait([closing, *waiting])
        received = [message for one in waiting if one.exception() is None for message in one.result()]
        ends = [type(one.exception()) for one in waiting if one.exception() is not None]
        assert set(ends) <= {AlreadyClosed, StopAsyncIteration, RuntimeError}
        assert len(ends) == 3 - len(received)
        again = await client.subscribe("t", "s")
        assert payloads(await receive(again, 1)) == [b"a"]


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


async def test_a_batch_may_be_of_one_topic_only() -> None:
    """CON-2: of several topics, in turn; with `messages_from_multi_topics_enabled` of all of them."""
    async with client_of() as (broker, client):
        topics = ["a", "b", "c"]
        for of_all in (True, False):
            policy = ConsumerBatchReceivePolicy(6, -1, -1, messages_from_multi_topics_enabled=of_all)
            consumer = await client.subscribe(topics, f"of all: {of_all}", batch_receive_policy=policy)
            for topic in topics:
                broker.topic(topic).publish(b"1", b"2")
                broker.topic(topic).publish(b"3")
            await until(lambda: len(core_of(consumer).queue) == 9, "all are prefetched")  # noqa: B023
            batch = await consumer.batch_receive()
            names = {message.topic_name() for message in batch}
            assert (len(batch), len(names) > 1) == ((6, True) if of_all else (3, False))
            assert payloads(batch)[:2] == [b"1", b"2"]
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
