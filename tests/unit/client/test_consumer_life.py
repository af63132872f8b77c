"""Consumers whose brokers go away, and whose topics move, grow and are made again; and partitions, all or none."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from magnetar import ConsumerType, InitialPosition
from magnetar.exceptions import (
    AlreadyClosed,
    ConsumerBusy,
    IncarnationChanged,
    InvalidConfiguration,
    InvalidTopicName,
    OperationNotSupported,
    StaleEpoch,
    SubscriptionNotFound,
    Timeout,
    TopicNotFound,
)
from magnetar_broker.topic.subscriptions import Subscriptions
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.clock import ManualClock
from magnetar_wire.message_id import MessageId
from tests.running import run, until
from tests.unit.client.consume_scene import MemoryBroker, client_of, payloads, receive

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
P = "persistent://public/default/"


def more_streams(broker: MemoryBroker, before: int) -> bool:
    return broker.streams > before


def has_consumers(subscriptions: Subscriptions, count: int) -> bool:
    return subscriptions.consumers == count


def test_a_broker_that_stands_still_is_left_in_a_few_seconds_and_not_before_what_is_acknowledged_has_left() -> None:
    async def go(*, pending: bool) -> float:
        clock = ManualClock()
        async with client_of(_clock=clock) as (broker, client):
            topic = broker.topic("t")
            topic.publish(b"1")
            consumer = await client.subscribe("t", "s", **EARLIEST, ack_grouping_time_ms=1e9)
            (message,) = await receive(consumer, 1)
            stands_still = topic.cursors.cursors["s"].gate = asyncio.Event()
            if pending:
                await consumer.acknowledge(message)
            began = clock.monotonic()
            closing = asyncio.get_running_loop().create_task(client.close())
            while not closing.done():
                for _ in range(50):
                    await asyncio.sleep(0)
                clock.advance(0.5)
            await closing
            stands_still.set()
            return clock.monotonic() - began

    assert run(go(pending=False)) < 5
    assert 5 < run(go(pending=True)) < 35


async def test_after_a_break_what_is_unacknowledged_comes_again_and_what_is_in_hand_can_be_acknowledged() -> None:
    """CON-3, CON-4"""
    async with client_of() as (broker, client):
        for kind in (ConsumerType.Exclusive, ConsumerType.Shared):
            topic = broker.topic(kind.name)
            for number in range(6):
                topic.publish(str(number).encode())
            topic.publish(b"a", b"b", b"c")
            consumer = await client.subscribe(kind.name, "s", kind, **EARLIEST, ack_grouping_time_ms=1e9)
            messages = await receive(consumer, 8)
            await consumer.acknowledge([messages[0], messages[2], messages[6]])  # gathered, not sent
            streams = broker.streams
            broker.break_streams()
            await until(partial(more_streams, broker, streams), "it tries again")
            await until(consumer.is_connected, "it is there again")
            await consumer.acknowledge(messages[4], receipt=True)
            cursor = topic.cursors.cursors["s"]
            assert cursor.done == {topic.log.order[at] for at in (0, 2, 4)}
            assert cursor.part == {topic.log.last: 1}
            got = payloads(await receive(consumer, 6))
            # 4 was on its way again before it was acknowledged, or not
            assert [payload for payload in got if payload != b"4"][:5] == [b"1", b"3", b"5", b"b", b"c"]
            await consumer.close()


async def test_a_receipt_is_waited_for_across_a_break() -> None:
    """CON-3"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        topic.publish(b"a")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        [message] = await receive(consumer, 1)
        cursor = topic.cursors.cursors["s"]
        cursor.gate = asyncio.Event()
        waiting = asyncio.create_task(consumer.acknowledge(message, receipt=True))
        await until(lambda: cursor.saves > 0, "the acknowledgement has come")
        broker.break_streams()
        await until(lambda: sum(len(one.acknowledge) for one in broker.requests) > 1, "it has come again")
        assert not waiting.done()
        cursor.gate.set()
        await waiting


@pytest.mark.parametrize("what", ["acknowledge", "seek", "unsubscribe"])
async def test_what_reaches_a_broker_behind_the_topic_s_end_there_is_asked_again_elsewhere(what: str) -> None:
    """CON-3: the broker knows the consumer no more, and word that it has ended comes together with the answer."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        first = topic.publish(b"a")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        [message] = await receive(consumer, 1)
        broker.answering.clear()
        topic.publish(b"b")
        for _ in range(20):  # it is on its way; what comes up behind it leaves in one message
            await asyncio.sleep(0)
        await broker.unload("t")
        before = len(broker.requests)
        asks = {
            "acknowledge": lambda: consumer.acknowledge(message, receipt=True),
            "seek": lambda: consumer.seek(MessageId.earliest),
            "unsubscribe": consumer.unsubscribe,
        }
        waiting = asyncio.create_task(asks[what]())
        await until(lambda: len(broker.requests) > before, "it has come")
        broker.answering.set()
        await waiting
        if what == "acknowledge":
            assert [one.data() for one in await receive(consumer, 1)] == [b"b"]
            assert topic.cursors.cursors["s"].mark_delete == first
        elif what == "seek":
            assert [one.data() for one in await receive(consumer, 1)] == [b"a"]
        else:
            assert "s" not in topic.cursors.cursors


async def test_a_topic_that_moves_is_found_again() -> None:
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        consumer = await client.subscribe("t", "s", ConsumerType.Failover, **EARLIEST)
        for number in range(5):
            topic.publish(str(number).encode())
            [message] = await receive(consumer, 1)
            assert message.data() == str(number).encode()
            await consumer.acknowledge(message, receipt=True)
            await broker.unload("t")
        assert broker.streams == 1


async def test_late_acknowledgements_are_over_if_the_subscription_was_moved_meanwhile() -> None:
    """SUB-9, CHK-52: also when that happened while the consumer was away."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(5):
            topic.publish(str(number).encode())
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await receive(consumer, 5)
        broker.problems[P + "t"] = ErrorCode.SERVICE_NOT_READY
        await broker.unload("t")
        await until(lambda: not consumer.is_connected(), "it is away")
        await consumer.acknowledge_cumulative(messages[4])
        await topic.cursors.cursors["s"].move_to(topic.log.order[1])
        del broker.problems[P + "t"]
        assert payloads(await receive(consumer, 3)) == [b"2", b"3", b"4"]
        await consumer.close()
        assert topic.cursors.cursors["s"].mark_delete == topic.log.order[1]


async def test_a_topic_made_again_is_another_topic() -> None:
    """TOP-7 (the client's part)"""
    async with client_of() as (broker, client):
        for number in range(5):
            broker.topic("t").publish(str(number).encode())
        consumer = await client.subscribe("t", "s", **EARLIEST)
        old = await receive(consumer, 3)
        broker.problems[P + "t"] = ErrorCode.SERVICE_NOT_READY
        await broker.delete("t")
        await until(lambda: not consumer.is_connected(), "it is away")
        receipt = asyncio.create_task(consumer.acknowledge(old[0], receipt=True))
        await asyncio.sleep(0)
        topic = broker.topic("t")
        for number in range(5):
            topic.publish(f"new {number}".encode())
        del broker.problems[P + "t"]
        with pytest.raises(IncarnationChanged):
            await receipt
        with pytest.raises(StaleEpoch):
            await consumer.acknowledge(old[0], receipt=True)
        new = await receive(consumer, 5)
        assert payloads(new) == [f"new {number}".encode() for number in range(5)]
        await consumer.acknowledge_cumulative(old[2])
        await consumer.acknowledge(new[3], receipt=True)
        assert topic.cursors.cursors["s"].done == {topic.log.order[3]}


async def test_a_deleted_topic_is_made_again_by_its_consumer_and_read_whole() -> None:
    """As by a new consumer; TOP-7 (the client's part)"""
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"old")
        consumer = await client.subscribe("t", "s")
        await broker.delete("t")
        await until(lambda: P + "t" in broker.topics, "it is made again")
        broker.topic("t").publish(b"new")
        assert payloads(await receive(consumer, 1)) == [b"new"]


@pytest.mark.parametrize("partitions", [0, 3])
async def test_a_deleted_topic_that_none_may_make_ends_the_consumer(partitions: int) -> None:
    """Also where it is a partition: no consumer waits for ever for what nobody will send."""
    async with client_of() as (broker, client):
        broker.partitioned[P + "t"] = partitions
        names = [f"t-partition-{index}" for index in range(partitions)] or ["t"]
        consumer = await client.subscribe("t", "s")
        waiting = asyncio.create_task(consumer.receive())
        for name in names:
            broker.problems[P + name] = ErrorCode.TOPIC_NOT_FOUND
        await broker.delete(names[-1])
        with pytest.raises(TopicNotFound):
            await waiting
        with pytest.raises(TopicNotFound):
            await consumer.receive()


async def test_a_second_exclusive_consumer_is_refused_and_a_partitioned_topic_goes_whole_or_not_at_all() -> None:
    """SUB-2"""
    async with client_of() as (broker, client):
        broker.partitioned[P + "t"] = 5
        await client.subscribe("t-partition-3", "s")
        with pytest.raises(ConsumerBusy):
            await client.subscribe("t", "s")
        for index in range(5):
            subscriptions = broker.topic(f"t-partition-{index}").subscriptions
            await until(partial(has_consumers, subscriptions, int(index == 3)), "the others are free")
        first, second = await asyncio.gather(*(client.subscribe("t", "x") for _ in range(2)), return_exceptions=True)
        assert sorted([isinstance(first, ConsumerBusy), isinstance(second, ConsumerBusy)]) == [False, True]


async def test_an_old_acknowledgement_fails_at_once_though_the_consumer_is_away() -> None:
    """TOP-7, CHK-57 (the client's part)"""
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"old")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        [old] = await receive(consumer, 1)
        broker.problems[P + "t"] = ErrorCode.SERVICE_NOT_READY
        await broker.delete("t")
        del broker.problems[P + "t"]
        other = await client.subscribe("t", "s")  # first there: the old one is refused for as long as it stays
        await until(lambda: consumer._core.partitions[0]._incarnation == "", "the old one knows")
        assert not consumer.is_connected()
        for what in (old, old.message_id()):
            with pytest.raises(StaleEpoch):
                await consumer.acknowledge(what, receipt=True)
        await other.close()
        await until(consumer.is_connected, "its turn has come")


async def test_the_partitions_consumers_share_one_name() -> None:
    """SUB-3 (partitioned): the spread goes by the consumers' names."""
    async with client_of() as (broker, client):
        broker.partitioned[P + "t"] = 4
        consumers = [await client.subscribe("t", "s", ConsumerType.Failover, **EARLIEST) for _ in range(2)]
        assert consumers[0].consumer_name() != consumers[1].consumer_name()
        names = {opened.consumer_name for one in broker.requests for opened in one.open}
        assert names == {one.consumer_name() for one in consumers}

        def active(consumer: Any) -> list[int]:
            return [part.partition for part in consumer._core.partitions if part.is_active]

        await until(lambda: len(active(consumers[0]) + active(consumers[1])) == 4, "each has its one")
        assert {len(active(one)) for one in consumers} == {2}
        broker.break_streams()
        await until(lambda: all(one.is_connected() for one in consumers), "all are there again")
        assert {opened.consumer_name for one in broker.requests for opened in one.open} == names


async def test_a_topic_with_partitions_is_read_whole_and_each_acknowledgement_reaches_its_partition() -> None:
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
        assert max(firsts) < 60, "none waits until another is empty"
        await consumer.acknowledge([m.message_id() for m in messages[:60]], receipt=True)
        await consumer.acknowledge(messages[60:], receipt=True)
        for index in range(3):
            topic = broker.topic(f"t-partition-{index}")
            assert topic.cursors.cursors["s"].mark_delete == topic.log.last
        with pytest.raises(OperationNotSupported):
            await consumer.get_last_message_id()
        assert [one.partition() for one in await consumer.get_last_message_ids()] == [0, 1, 2]


async def test_new_partitions_are_read_from_their_first_message() -> None:
    """TOP-3 (the client's part), CHK-56"""
    async with client_of() as (broker, client):
        broker.partitioned[P + "t"] = 1
        consumer = await client.subscribe("t", "s", auto_update_partitions_interval_seconds=0.02)
        broker.topic("t-partition-1").publish(b"before anybody noticed")
        broker.partitioned[P + "t"] = 3
        assert payloads(await receive(consumer, 1)) == [b"before anybody noticed"]
        broker.topic("t-partition-2").publish(b"and this")
        assert payloads(await receive(consumer, 1)) == [b"and this"]


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


async def test_what_was_not_waited_for_is_closed_again() -> None:
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
            await until(partial(has_consumers, subscriptions, 0), "nobody is left")
        await (await client.subscribe("t", "s")).close()


async def test_unsubscribing_deletes_the_subscription() -> None:
    async with client_of() as (broker, client):
        consumer = await client.subscribe("t", "s")
        await consumer.unsubscribe()
        assert broker.topic("t").cursors.cursors == {}
        with pytest.raises(AlreadyClosed):
            await consumer.receive(1000)
        await asyncio.sleep(0.05)
        assert broker.topic("t").cursors.cursors == {}, "and nobody makes it again"


async def test_a_subscription_that_is_deleted_ends_its_consumer() -> None:
    async with client_of() as (broker, client):
        consumer = await client.subscribe("t", "s")
        waiting = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        await broker.topic("t").subscriptions.delete("s", force=True)
        with pytest.raises(SubscriptionNotFound):
            await waiting
        with pytest.raises(SubscriptionNotFound):
            await consumer.receive()
        with pytest.raises(SubscriptionNotFound):
            await consumer.seek(1)
        assert not consumer.is_connected()
        await consumer.close()


async def test_closing_ends_whoever_waits() -> None:
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


async def test_what_is_not_there_yet_is_refused() -> None:
    async with client_of() as (_, client):
        unsupported: dict[str, Any] = {
            "is_read_compacted": True,
            "unacked_messages_timeout_ms": 10_000,
            "dead_letter_policy": object(),
            "key_shared_policy": object(),
            "schema": object(),
            "crypto_key_reader": object(),
            "replicate_subscription_state_enabled": True,
        }
        for option, value in unsupported.items():
            with pytest.raises(OperationNotSupported, match=option):
                await client.subscribe("t", "s", **{option: value})
        with pytest.raises(OperationNotSupported, match="KeyShared"):
            await client.subscribe("t", "s", ConsumerType.KeyShared)
        wrongs: list[dict[str, Any]] = [
            {"receiver_queue_size": -1},
            {"no_such_option": 1},
            {"negative_ack_redelivery_backoff": 5},
        ]
        for wrong in wrongs:
            with pytest.raises(InvalidConfiguration):
                await client.subscribe("t", "s", **wrong)
        with pytest.raises(InvalidConfiguration):
            await client.subscribe("t", "")


async def test_opening_tries_until_its_time_is_over() -> None:
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
