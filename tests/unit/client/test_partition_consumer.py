"""The consumer of one partition: openings, disconnects, moved and deleted topics, seeks and epochs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from magnetar import ConsumerType, InitialPosition, MessageId
from magnetar.exceptions import (
    IncarnationChanged,
    StaleEpoch,
    SubscriptionNotFound,
    TopicNotFound,
)
from magnetar_protos.broker_pb2 import Delivery, ErrorCode
from magnetar_testing.clock import ManualClock
from magnetar_wire.errors import MalformedFrame
from tests.running import run, until
from tests.unit.client.consume_scene import MemoryBroker, client_of, payloads, receive

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
P = "persistent://public/default/"


def more_streams(broker: MemoryBroker, before: int) -> bool:
    return broker.streams > before


def test_closing_leaves_an_unresponsive_broker_after_seconds_unless_acknowledgements_are_unsent() -> None:
    async def go(*, pending: bool) -> float:
        clock = ManualClock()
        async with client_of(_clock=clock) as (broker, client):
            topic = broker.topic("t")
            topic.publish(b"1")
            consumer = await client.subscribe("t", "s", **EARLIEST, ack_grouping_time_ms=1e9)
            (message,) = await receive(consumer, 1)
            gate = topic.cursors.cursors["s"].gate = asyncio.Event()
            if pending:
                await consumer.acknowledge(message)
            began = clock.monotonic()
            closing = asyncio.get_running_loop().create_task(client.close())
            while not closing.done():
                for _ in range(50):
                    await asyncio.sleep(0)
                clock.advance(0.5)
            await closing
            gate.set()
            return clock.monotonic() - began

    assert run(go(pending=False)) < 5
    assert 5 < run(go(pending=True)) < 35


async def test_after_a_disconnect_messages_are_redelivered_and_received_ones_can_be_acknowledged() -> None:
    """CON-3, CON-4"""
    async with client_of() as (broker, client):
        for kind in (ConsumerType.Exclusive, ConsumerType.Shared):
            topic = broker.topic(kind.name)
            for number in range(6):
                topic.publish(str(number).encode())
            topic.publish(b"a", b"b", b"c")
            consumer = await client.subscribe(kind.name, "s", kind, **EARLIEST, ack_grouping_time_ms=1e9)
            messages = await receive(consumer, 8)
            await consumer.acknowledge([messages[0], messages[2], messages[6]])  # collected, not sent
            streams = broker.streams
            broker.break_streams()
            await until(partial(more_streams, broker, streams), "it reconnects")
            await until(consumer.is_connected, "it is connected again")
            await consumer.acknowledge(messages[4], receipt=True)
            cursor = topic.cursors.cursors["s"]
            assert cursor.acknowledged_entries == {topic.log.order[at] for at in (0, 2, 4)}
            assert cursor.partial_batches == {topic.log.last: 1}
            got = payloads(await receive(consumer, 6))
            # 4 was redelivered before it was acknowledged, or not
            assert [payload for payload in got if payload != b"4"][:5] == [b"1", b"3", b"5", b"b", b"c"]
            await consumer.close()


async def test_a_receipt_survives_a_disconnect() -> None:
    """CON-3"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        topic.publish(b"a")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        [message] = await receive(consumer, 1)
        cursor = topic.cursors.cursors["s"]
        cursor.gate = asyncio.Event()
        waiting = asyncio.create_task(consumer.acknowledge(message, receipt=True))
        await until(lambda: cursor.saves > 0, "the acknowledgement has arrived")
        broker.break_streams()
        await until(lambda: sum(len(one.acknowledge) for one in broker.requests) > 1, "it was sent again")
        assert not waiting.done()
        cursor.gate.set()
        await waiting


@pytest.mark.parametrize("what", ["acknowledge", "seek", "unsubscribe"])
async def test_a_request_to_a_broker_that_has_closed_the_consumer_is_repeated_in_the_next_opening(what: str) -> None:
    """CON-3: the broker's notice that the consumer is closed is sent together with the answer."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        first = topic.publish(b"a")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        [message] = await receive(consumer, 1)
        broker.answering.clear()
        topic.publish(b"b")
        for _ in range(20):  # it is in flight, and what follows is sent in one message
            await asyncio.sleep(0)
        await broker.unload("t")
        before = len(broker.requests)
        asks = {
            "acknowledge": lambda: consumer.acknowledge(message, receipt=True),
            "seek": lambda: consumer.seek(MessageId.earliest),
            "unsubscribe": consumer.unsubscribe,
        }
        waiting = asyncio.create_task(asks[what]())
        await until(lambda: len(broker.requests) > before, "it has arrived")
        broker.answering.set()
        await waiting
        if what == "acknowledge":
            assert [one.data() for one in await receive(consumer, 1)] == [b"b"]
            assert topic.cursors.cursors["s"].mark_delete == first
        elif what == "seek":
            assert [one.data() for one in await receive(consumer, 1)] == [b"a"]
        else:
            assert "s" not in topic.cursors.cursors


async def test_a_consumer_follows_its_topic_to_another_broker() -> None:
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


async def test_acknowledgements_are_stale_if_the_subscription_was_moved_during_a_disconnect() -> None:
    """SUB-9, CHK-52"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(5):
            topic.publish(str(number).encode())
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await receive(consumer, 5)
        broker.problems[P + "t"] = ErrorCode.SERVICE_NOT_READY
        await broker.unload("t")
        await until(lambda: not consumer.is_connected(), "it is disconnected")
        await consumer.acknowledge_cumulative(messages[4])
        await topic.cursors.cursors["s"].move_to(topic.log.order[1])
        del broker.problems[P + "t"]
        assert payloads(await receive(consumer, 3)) == [b"2", b"3", b"4"]
        await consumer.close()
        assert topic.cursors.cursors["s"].mark_delete == topic.log.order[1]


async def test_acknowledgements_of_a_deleted_topic_don_t_apply_to_the_recreated_one() -> None:
    """TOP-7 (the client's part)"""
    async with client_of() as (broker, client):
        for number in range(5):
            broker.topic("t").publish(str(number).encode())
        consumer = await client.subscribe("t", "s", **EARLIEST)
        old = await receive(consumer, 3)
        broker.problems[P + "t"] = ErrorCode.SERVICE_NOT_READY
        await broker.delete("t")
        await until(lambda: not consumer.is_connected(), "it is disconnected")
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
        assert topic.cursors.cursors["s"].acknowledged_entries == {topic.log.order[3]}


async def test_a_consumer_recreates_its_deleted_topic_and_reads_it_from_the_first_message() -> None:
    """TOP-7 (the client's part)"""
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"old")
        consumer = await client.subscribe("t", "s")
        await broker.delete("t")
        await until(lambda: P + "t" in broker.topics, "it is recreated")
        broker.topic("t").publish(b"new")
        assert payloads(await receive(consumer, 1)) == [b"new"]


@pytest.mark.parametrize("partitions", [0, 3])
async def test_a_deleted_topic_that_must_not_be_recreated_ends_the_consumer(partitions: int) -> None:
    """Also if it is one partition: a consumer must not wait forever for messages that nobody will send."""
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


async def test_a_stale_acknowledgement_fails_at_once_without_a_connection() -> None:
    """TOP-7, CHK-57 (the client's part)"""
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"old")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        [old] = await receive(consumer, 1)
        broker.problems[P + "t"] = ErrorCode.SERVICE_NOT_READY
        await broker.delete("t")
        del broker.problems[P + "t"]
        other = await client.subscribe("t", "s")  # it is first, so the old one is refused as long as it is open
        await until(lambda: consumer._core.partitions[0]._incarnation == "", "the deleted topic is noticed")
        assert not consumer.is_connected()
        for what in (old, old.message_id()):
            with pytest.raises(StaleEpoch):
                await consumer.acknowledge(what, receipt=True)
        await other.close()
        await until(consumer.is_connected, "it is connected")


async def test_deleting_the_subscription_ends_its_consumer() -> None:
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


async def test_seek_to_a_message_a_time_and_the_ends() -> None:
    """SUB-9"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(5):
            topic.publish(str(number).encode(), time_ms=1000 + number)
        topic.publish(b"a", b"b", b"c", b"d", time_ms=1005)
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await receive(consumer, 9)
        starts: list[tuple[MessageId | int, bytes]] = [
            (messages[2].message_id(), b"3"),
            (messages[6].message_id(), b"c"),
            (1004, b"4"),
            (MessageId.earliest, b"0"),
        ]
        for where, expected in starts:
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
        assert topic.cursors.cursors["i"].mark_delete == topic.log.last, "the skipped rows don't hold it up"


async def test_acknowledgements_from_before_a_seek_are_stale() -> None:
    """SUB-9, CHK-52: a late cumulative acknowledgement would undo the seek."""
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
        assert topic.cursors.cursors["s"].acknowledged_entries == {topic.log.order[5]}


async def test_the_last_seek_counts_though_the_consumer_did_not_know_of_another_one_s() -> None:
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
        await until(lambda: sum(len(request.seek) for request in broker.requests) == 2, "the second has arrived")
        await asyncio.sleep(0)
        assert cursor.moves == known + 1
        broker.answering.set()
        await asyncio.gather(seeking, seeking_too)
        assert cursor.moves == known + 2
        assert cursor.mark_delete == topic.log.order[1]


async def test_messages_in_flight_before_a_seek_are_dropped() -> None:
    """SUB-9, CHK-52"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(2000):
            topic.publish(str(number).encode())
        consumer = await client.subscribe("t", "s", **EARLIEST)
        for entry_id in (1500, 3, 700, 1999, 0):
            await consumer.seek(MessageId(-1, *topic.log.order[entry_id]))
            if entry_id == 1999:
                continue
            for number in range(entry_id + 1, min(entry_id + 30, 2000)):
                assert (await consumer.receive(60_000)).data() == str(number).encode()
                await asyncio.sleep(0)


async def test_deliveries_of_an_old_epoch_are_dropped() -> None:
    """CHK-52: a broker may send them, and they take no permits. Others name the entries that they skip."""
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
        part.take_delivered()
        assert payloads(await receive(consumer, 1)) == [b"a"]
        delivery = Delivery(ledger_id=70, first_entry_id=3, epoch=part.epoch.number, gaps=[0, 5])
        part.delivered(delivery, 3 * stored)
        part.take_delivered()
        received = [(await consumer.receive(60_000)).message_id() for _ in range(3)]
        assert [(one.ledger_id(), one.entry_id()) for one in received] == [(70, 3), (70, 4), (70, 10)]
        with pytest.raises(MalformedFrame):
            part.delivered(delivery, 2 * stored)
