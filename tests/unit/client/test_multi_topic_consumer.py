"""A consumer as a whole: all partitions or none, new partitions, closing, and which messages it acknowledges."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar import ConsumerDeadLetterPolicy, ConsumerType, InitialPosition, MessageId, aio
from magnetar.exceptions import (
    AlreadyClosed,
    ConsumerBusy,
    InvalidConfiguration,
    InvalidMessage,
    InvalidTopicName,
    OperationNotSupported,
    Timeout,
)
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_protos.broker_pb2 import ErrorCode
from tests.running import until
from tests.unit.client.consume_scene import client_of, payloads, receive

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
P = "persistent://public/default/"


def has_consumers(subscriptions: Subscriptions, count: int) -> bool:
    return subscriptions.consumers == count


def has_waiting(consumer: aio.Consumer, count: int) -> bool:
    return len(consumer._core.queue) == count


async def test_exclusive_consumer_gets_all_partitions_or_is_refused() -> None:
    """SUB-2"""
    async with client_of() as (broker, client):
        broker.partitioned[P + "t"] = 5
        await client.subscribe("t-partition-3", "s")
        with pytest.raises(ConsumerBusy):
            await client.subscribe("t", "s")
        for index in range(5):
            subscriptions = broker.topic(f"t-partition-{index}").subscriptions
            await until(partial(has_consumers, subscriptions, int(index == 3)), "the others are closed")
        first, second = await asyncio.gather(*(client.subscribe("t", "x") for _ in range(2)), return_exceptions=True)
        assert sorted([isinstance(first, ConsumerBusy), isinstance(second, ConsumerBusy)]) == [False, True]


async def test_all_partitions_have_the_consumer_s_name() -> None:
    """SUB-3 (partitioned): partitions are distributed by the consumers' names."""
    async with client_of() as (broker, client):
        broker.partitioned[P + "t"] = 4
        consumers = [await client.subscribe("t", "s", ConsumerType.Failover, **EARLIEST) for _ in range(2)]
        assert consumers[0].consumer_name() != consumers[1].consumer_name()
        names = {opened.consumer_name for one in broker.requests for opened in one.open}
        assert names == {one.consumer_name() for one in consumers}

        def active(consumer: Any) -> list[int]:
            return [part.partition for part in consumer._core.partitions if part.is_active]

        await until(lambda: len(active(consumers[0]) + active(consumers[1])) == 4, "each partition has a consumer")
        assert {len(active(one)) for one in consumers} == {2}
        broker.break_streams()
        await until(lambda: all(one.is_connected() for one in consumers), "all are connected again")
        assert {opened.consumer_name for one in broker.requests for opened in one.open} == names


async def test_all_partitions_are_read_and_each_acknowledgement_reaches_its_partition() -> None:
    """SUB-2, SUB-3 (partitioned)"""
    async with client_of() as (broker, client):
        broker.partitioned[P + "t"] = 3
        for index in range(3):
            for number in range(40):
                broker.topic(f"t-partition-{index}").publish(f"{index}:{number}".encode())
        consumer = await client.subscribe("t", "s", ConsumerType.Failover, **EARLIEST, receiver_queue_size=10)
        messages = await receive(consumer, 120)
        for index in range(3):
            mine = [m for m in messages if m.message_id().partition() == index]
            assert payloads(mine) == [f"{index}:{number}".encode() for number in range(40)]
            assert {m.topic_name() for m in mine} == {f"{P}t-partition-{index}"}
        firsts = [messages.index(next(m for m in messages if m.message_id().partition() == i)) for i in range(3)]
        assert max(firsts) < 60, "they are read in turn"
        await consumer.acknowledge([m.message_id() for m in messages[:60]], receipt=True)
        await consumer.acknowledge(messages[60:], receipt=True)
        for index in range(3):
            topic = broker.topic(f"t-partition-{index}")
            assert topic.cursors.cursors["s"].mark_delete == topic.log.last
        with pytest.raises(OperationNotSupported):
            await consumer.get_last_message_id()
        assert [one.partition() for one in await consumer.get_last_message_ids()] == [0, 1, 2]


async def test_a_list_of_topics() -> None:
    async with client_of() as (broker, client):
        consumer = await client.subscribe(["a", P + "a", "b"], "s")
        broker.topic("a").publish(b"a")
        broker.topic("b").publish(b"b")
        assert sorted(payloads(await receive(consumer, 2))) == [b"a", b"b"]
        assert consumer.topic() == f"{P}a,{P}b"
        for wrong in ([], ["a/b"]):
            with pytest.raises(InvalidTopicName):
                await client.subscribe(wrong, "s")


async def test_a_list_of_a_topic_and_its_partition() -> None:
    """SUB-8: the partition has one consumer, which may be the only one."""
    async with client_of() as (broker, client):
        broker.partitioned[P + "t"] = 2
        consumer = await client.subscribe(["t-partition-0", "t", "t-partition-0"], "s")
        for index in range(2):
            broker.topic(f"t-partition-{index}").publish(b"%d" % index)
        assert sorted(payloads(await receive(consumer, 2))) == [b"0", b"1"]


async def test_cancelled_subscribe_leaves_no_consumer_open() -> None:
    async with client_of() as (broker, client):
        broker.partitioned[P + "t"] = 2
        for steps in range(60):
            opening = asyncio.create_task(client.subscribe("t", "s"))
            for _ in range(steps):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled():
                await opening.result().close()
        for index in range(2):
            subscriptions = broker.topic(f"t-partition-{index}").subscriptions
            await until(partial(has_consumers, subscriptions, 0), "no consumer is left")
        await (await client.subscribe("t", "s")).close()


async def test_unsubscribe_deletes_the_subscription() -> None:
    async with client_of() as (broker, client):
        consumer = await client.subscribe("t", "s")
        await consumer.unsubscribe()
        assert broker.topic("t").cursors.cursors == {}
        with pytest.raises(AlreadyClosed):
            await consumer.receive(1000)
        await client.subscribe("t", "next")  # a request to open the first one again would come before
        assert list(broker.topic("t").cursors.cursors) == ["next"], "and it is not recreated"


async def test_closing_ends_all_calls_that_wait() -> None:
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"a")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        [message] = await receive(consumer, 1)
        waiting = [asyncio.create_task(consumer.receive()), asyncio.create_task(consumer.batch_receive())]

        async def each() -> list[bytes]:
            return [one.data() async for one in consumer]

        going = asyncio.create_task(each())
        await asyncio.sleep(0)
        await consumer.close()
        await consumer.close()
        for task in waiting:
            with pytest.raises(AlreadyClosed):
                await task
        assert await going == []
        for refused in (consumer.acknowledge(message), consumer.seek(1), consumer.get_last_message_id()):
            with pytest.raises(AlreadyClosed):
                await refused
        with pytest.raises(AlreadyClosed):
            await consumer.negative_acknowledge(message)


async def test_unsupported_and_invalid_options_are_refused() -> None:
    async with client_of() as (_, client):
        unsupported: dict[str, Any] = {
            "is_read_compacted": True,
            "crypto_key_reader": object(),
            "replicate_subscription_state_enabled": True,
        }
        for option, value in unsupported.items():
            with pytest.raises(OperationNotSupported, match=option):
                await client.subscribe("t", "s", **{option: value})
        retry_policy = ConsumerDeadLetterPolicy(1, retry_letter_topic="r")
        no_backoff = SimpleNamespace(min_delay_ms=None, next=lambda count: 1)
        wrongs: list[dict[str, Any]] = [
            {"receiver_queue_size": -1},
            {"no_such_option": 1},
            {"negative_ack_redelivery_backoff": 5},
            {"negative_ack_redelivery_delay_ms": math.inf},
            {"unacked_messages_timeout_ms": 2**70},
            {"dead_letter_policy": retry_policy, "consumer_type": ConsumerType.Shared},
            {"negative_ack_redelivery_backoff": no_backoff},
            {"dead_letter_policy": object(), "consumer_type": ConsumerType.Shared},
            {"key_shared_policy": object(), "consumer_type": ConsumerType.KeyShared},
        ]
        for wrong in wrongs:
            with pytest.raises(InvalidConfiguration):
                await client.subscribe("t", "s", **wrong)
        with pytest.raises(InvalidConfiguration):
            await client.subscribe("t", "")


async def test_opening_is_retried_until_the_operation_s_timeout() -> None:
    async with client_of(operation_timeout_seconds=0.2) as (broker, client):
        broker.problems[P + "t"] = ErrorCode.SERVICE_NOT_READY
        with pytest.raises(Exception, match="SERVICE_NOT_READY"):
            await client.subscribe("t", "s")
        opening = asyncio.create_task(client.subscribe("t", "s"))
        await asyncio.sleep(0.01)
        del broker.problems[P + "t"]
        consumer = await opening
        with pytest.raises(Timeout):
            await consumer.receive(1)
        assert (await consumer.get_last_message_id()).entry_id() == -1
        broker.topic("t").publish(b"a", b"b")
        assert await consumer.get_last_message_id() == MessageId(-1, 7, 0, 1)


async def test_everything_unacknowledged_is_redelivered_on_request() -> None:
    """CON-5: no message that was prefetched is received after that: its cumulative acknowledgement would acknowledge
    messages that are redelivered."""
    async with client_of() as (broker, client):
        for kind in (ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover):
            topic = broker.topic(kind.name)
            for number in range(9):
                topic.publish(str(number).encode())
            consumer = await client.subscribe(kind.name, "s", kind, **EARLIEST)
            messages = await receive(consumer, 3)
            await consumer.acknowledge(messages[1])
            await until(partial(has_waiting, consumer, 6), "all others are prefetched")
            consumer.redeliver_unacknowledged_messages()
            got = payloads(await receive(consumer, 8))
            assert sorted(got) == [b"0", *(str(number).encode() for number in range(2, 9))]
            assert kind is ConsumerType.Shared or got == sorted(got)
            broker.break_streams()
            consumer.redeliver_unacknowledged_messages()
            got = payloads(await receive(consumer, 8))
            assert sorted(got) == [b"0", *(str(number).encode() for number in range(2, 9))]
            topic.publish(b"9")
            while (await consumer.receive(60_000)).data() != b"9":  # it goes on
                pass
            await consumer.close()


async def test_messages_that_the_consumer_can_t_have_received_are_refused() -> None:
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"a", b"b")
        one = await client.subscribe("t", "one", **EARLIEST)
        other = await client.subscribe("t", "other", **EARLIEST)
        message, _ = await receive(one, 2)
        for wrong in (
            message,
            MessageId.earliest,
            MessageId.latest,
            MessageId(-1, 7, 0, 1),
            MessageId(-1, 7, 0, 5, 2),
            MessageId(-1, 7, 0, topic_name="persistent://public/default/another"),
        ):
            with pytest.raises(InvalidMessage):
                await other.acknowledge(wrong)
            with pytest.raises(InvalidMessage):
                await other.negative_acknowledge(wrong)
        with pytest.raises(TypeError):
            await one.acknowledge([b"a"])  # type: ignore[list-item]
