"""What comes again, and what does not: negative acknowledgements, redelivery, seeks, and what becomes of late
acknowledgements."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from magnetar import ConsumerType, InitialPosition, MessageId, MultiplierRedeliveryBackoff, aio
from magnetar.exceptions import InvalidConfiguration, InvalidMessage, StaleEpoch
from magnetar_protos.broker_pb2 import Delivery
from tests.running import until
from tests.unit.client.consume_scene import client_of, payloads, receive

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
SOON: Any = {**EARLIEST, "negative_ack_redelivery_delay_ms": 20}


def has_waiting(consumer: aio.Consumer, count: int) -> bool:
    return len(consumer._core.queue) == count


async def test_exclusive_everything_unacknowledged_comes_again_in_order() -> None:
    """CON-5, CHK-52: gathered acknowledgements leave before that, and still count when they come later."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(10):
            topic.publish(str(number).encode())
        consumer = await client.subscribe("t", "s", **SOON, ack_grouping_time_ms=1e9)
        messages = await receive(consumer, 6)
        await consumer.acknowledge(messages[0])
        await consumer.acknowledge(messages[3])
        await consumer.negative_acknowledge(messages[1])
        await until(
            lambda: consumer._core.partitions[0].epoch.number != messages[0]._entry.epoch.number, "it begins anew"
        )
        again = await receive(consumer, 8)
        assert payloads(again) == [b"1", b"2", b"4", b"5", b"6", b"7", b"8", b"9"]
        assert [m.redelivery_count() for m in again[:4]] == [1, 1, 1, 1]
        await consumer.acknowledge([messages[1], messages[2]], receipt=True)
        assert topic.cursors.cursors["s"].mark_delete == topic.log.order[3], "late ones still count"
        [request] = [one for one in broker.requests if one.redeliver]
        assert [range_.first_entry_id for range_ in request.acknowledge[0].entries] == [0, 3]


async def test_shared_that_entry_comes_again_without_what_is_acknowledged() -> None:
    """CON-4, CON-5"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        topic.publish(b"a", b"b", b"c", b"d")
        topic.publish(b"x", b"y")
        consumer = await client.subscribe("t", "s", ConsumerType.Shared, **SOON)
        messages = await receive(consumer, 3)
        await consumer.acknowledge(messages[1])
        await consumer.negative_acknowledge(messages[0])
        await consumer.negative_acknowledge(messages[2])  # the same entry: once
        await until(lambda: any(one.redeliver for one in broker.requests), "it is asked for")
        rest = await receive(consumer, 5)
        assert sorted(payloads(rest)) == [b"a", b"c", b"d", b"x", b"y"], "d, which waited here, comes once"
        assert [m.redelivery_count() for m in rest if m.data() in b"acd"] == [1, 1, 1]
        await consumer.acknowledge(rest, receipt=True)
        assert topic.cursors.cursors["s"].mark_delete == topic.log.last
        assert sum(len(one.redeliver) for one in broker.requests) == 1
        assert len(consumer._core.queue) == 0


async def test_a_backoff_grows_with_each_delivery() -> None:
    """CON-5"""
    backoff = MultiplierRedeliveryBackoff()
    assert [backoff.next(count) for count in range(8)] == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
    assert backoff.next(10_000) == 60_000
    with pytest.raises(InvalidConfiguration):
        MultiplierRedeliveryBackoff(10, 5)

    async with client_of() as (broker, client):
        broker.topic("t").publish(b"a")
        backoff = MultiplierRedeliveryBackoff(10, 40)
        consumer = await client.subscribe(
            "t", "s", ConsumerType.Shared, **EARLIEST, negative_ack_redelivery_backoff=backoff
        )
        counts = []
        for _ in range(4):
            [message] = await receive(consumer, 1)
            counts.append(message.redelivery_count())
            await consumer.negative_acknowledge(message)
        assert counts == [0, 1, 2, 3]


async def test_all_that_is_unacknowledged_can_be_asked_for() -> None:
    """CON-5: nothing that was on its way before is received after that, or a cumulative acknowledgement of it would
    acknowledge what is still to come."""
    async with client_of() as (broker, client):
        for kind in (ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover):
            topic = broker.topic(kind.name)
            for number in range(9):
                topic.publish(str(number).encode())
            consumer = await client.subscribe(kind.name, "s", kind, **EARLIEST)
            messages = await receive(consumer, 3)
            await consumer.acknowledge(messages[1])
            await until(partial(has_waiting, consumer, 6), "all others wait here")
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


async def test_seeking_to_a_message_a_time_and_the_ends() -> None:
    """SUB-9"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(5):
            topic.publish(str(number).encode(), time_ms=1000 + number)
        topic.publish(b"a", b"b", b"c", b"d", time_ms=1005)
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await receive(consumer, 9)
        places: list[tuple[MessageId | int, bytes]] = [
            (messages[2].message_id(), b"3"),
            (messages[6].message_id(), b"c"),
            (1004, b"4"),
            (MessageId.earliest, b"0"),
        ]
        for where, expected in places:
            await consumer.seek(where)
            first, *_ = await receive(consumer, 1)
            assert first.data() == expected
        await consumer.seek(MessageId.latest)
        topic.publish(b"new")
        assert payloads(await receive(consumer, 1)) == [b"new"]
        with pytest.raises(TypeError):
            await consumer.seek("then")  # type: ignore[arg-type]

        inclusive = await client.subscribe("t", "i", **EARLIEST, start_message_id_inclusive=True)
        await inclusive.seek(messages[6].message_id())
        got = await receive(inclusive, 4)
        assert payloads(got) == [b"b", b"c", b"d", b"new"]
        await inclusive.acknowledge(got, receipt=True)
        assert topic.cursors.cursors["i"].mark_delete == topic.log.last, "what was left out does not hold it up"


async def test_acknowledgements_from_before_a_seek_are_over() -> None:
    """SUB-9, CHK-52: a late cumulative one would undo the seek."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(10):
            topic.publish(str(number).encode())
        consumer = await client.subscribe("t", "s", **EARLIEST)
        before = await receive(consumer, 10)
        await consumer.seek(MessageId.earliest)
        await consumer.acknowledge_cumulative(before[8])
        await consumer.acknowledge(before[1])
        with pytest.raises(StaleEpoch):
            await consumer.acknowledge(before[2], receipt=True)
        for late in (before[9], before[9].message_id()):
            with pytest.raises(StaleEpoch):
                await consumer.acknowledge_cumulative(late, receipt=True)
        await consumer.acknowledge_cumulative(before[8].message_id())
        after = await receive(consumer, 10)
        await consumer.acknowledge(after[5], receipt=True)
        assert topic.cursors.cursors["s"].done == {topic.log.order[5]}


async def test_the_last_seek_counts_though_another_consumer_s_was_not_known_of() -> None:
    """SUB-9"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(3):
            topic.publish(str(number).encode())
        one, other = [await client.subscribe("t", "s", ConsumerType.Shared) for _ in range(2)]
        cursor = topic.cursors.cursors["s"]
        known = cursor.moves
        broker.answering.clear()
        seeking = asyncio.create_task(one.seek(MessageId.earliest))
        await until(lambda: cursor.moves == known + 1, "the first is done")
        seeking_too = asyncio.create_task(other.seek(MessageId(-1, *topic.log.order[1])))
        await until(lambda: sum(len(request.seek) for request in broker.requests) == 2, "the second has come")
        await asyncio.sleep(0)
        assert cursor.moves == known + 1
        broker.answering.set()
        await asyncio.gather(seeking, seeking_too)
        assert cursor.moves == known + 2
        assert cursor.mark_delete == topic.log.order[1]


async def test_what_was_on_its_way_before_a_seek_is_dropped() -> None:
    """SUB-9, CHK-52"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(2000):
            topic.publish(str(number).encode())
        consumer = await client.subscribe("t", "s", **EARLIEST)
        for place in (1500, 3, 700, 1999, 0):
            await consumer.seek(MessageId(-1, *topic.log.order[place]))
            if place == 1999:
                continue
            for number in range(place + 1, min(place + 30, 2000)):
                assert (await consumer.receive(60_000)).data() == str(number).encode()
                await asyncio.sleep(0)


async def test_what_is_delivered_of_an_epoch_that_is_over_is_dropped() -> None:
    """CHK-52: it is overtaken by nothing, but a broker may send it all the same; it takes no permits either."""
    async with client_of() as (broker, client):
        position = broker.topic("t").publish(b"a")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        part = consumer._core.partitions[0]
        before = part.epoch.number
        await consumer.seek(MessageId.latest)
        stored = [broker.topic("t").log.entries[position].stored]
        outstanding = part.permits.outstanding
        part.delivered(Delivery(ledger_id=position[0], first_entry_id=position[1], epoch=before), stored)
        assert len(consumer._core.queue) == 0
        assert part.permits.outstanding == outstanding
        part.delivered(Delivery(ledger_id=position[0], first_entry_id=position[1], epoch=part.epoch.number), stored)
        assert payloads(await receive(consumer, 1)) == [b"a"]


async def test_what_no_consumer_can_have_received_is_refused() -> None:
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
