"""Readers."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from magnetar import MessageId
from magnetar.aio import Reader
from magnetar.exceptions import AlreadyClosed, InvalidConfiguration
from tests.running import until
from tests.unit.client.consume_scene import MemoryBroker, client_of

P = "persistent://public/default/"


def _is_reconnected(broker: MemoryBroker, streams: int, reader: Reader) -> bool:
    return broker.streams > streams and reader.is_connected()


async def test_a_reader_starts_at_its_start_message_id() -> None:
    """CON-11: earliest, latest, an id, a time; also within a batch."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(3):
            topic.publish(str(number).encode(), time_ms=100 + number)
        batch = topic.publish(b"a", b"b", b"c", time_ms=103)
        first = topic.log.order[0]
        starts: list[tuple[MessageId | int, bool, list[bytes]]] = [
            (MessageId.earliest, False, [b"0", b"1", b"2", b"a", b"b", b"c"]),
            (MessageId(-1, *first), False, [b"1", b"2", b"a", b"b", b"c"]),
            (MessageId(-1, *first), True, [b"0", b"1", b"2", b"a", b"b", b"c"]),
            (MessageId(-1, *batch, 0, 3), False, [b"b", b"c"]),
            (MessageId(-1, *batch, 1, 3), True, [b"b", b"c"]),
            (MessageId(-1, *batch, 2, 3), False, []),
            (102, False, [b"2", b"a", b"b", b"c"]),
            (10**15, False, []),
            (MessageId.latest, False, []),
        ]
        for start, inclusive, expected in starts:
            reader = await client.create_reader("t", start, start_message_id_inclusive=inclusive)
            got = []
            while await reader.has_message_available():
                got.append((await reader.read_next()).data())
            assert got == expected, start
            late = topic.publish(b"late")
            assert await reader.has_message_available()
            assert (await reader.read_next()).data() == b"late"
            assert not await reader.has_message_available()
            await reader.close()
            topic.log.entries.pop(late)
            topic.log.order.remove(late)
        assert topic.cursors.cursors == {}, "a reader leaves no subscription behind"


async def test_has_message_available_is_true_only_if_a_read_returns() -> None:
    """CON-11"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        reader = await client.create_reader("t", MessageId.latest)
        for number in range(30):
            assert not await reader.has_message_available()
            if number % 3:
                topic.publish(str(number).encode())
            else:
                topic.publish(str(number).encode(), b"too")
            assert await reader.has_message_available()
            read = 0
            while await reader.has_message_available():
                await reader.read_next(60_000)
                read += 1
            assert read == (1 if number % 3 else 2)
        await reader.seek(MessageId(-1, *topic.log.last))
        assert not await reader.has_message_available()
        await reader.seek(10**15)
        assert not await reader.has_message_available()
        await reader.seek(MessageId.earliest)
        assert await reader.has_message_available()
        assert (await reader.read_next(60_000)).data() == b"0"


@pytest.mark.parametrize("batches", [False, True])
async def test_a_reader_continues_behind_its_read_position_after_a_disconnect(batches: bool) -> None:
    """SUB-7, CON-11: no message is skipped or repeated."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        expected: list[bytes] = []

        def publish(count: int) -> None:
            for _ in range(count):
                payloads = [b"%d" % (len(expected) + at) for at in range(3 if batches else 1)]
                topic.publish(*payloads)
                expected.extend(payloads)

        reader = await client.create_reader("t", MessageId.latest)
        got: list[bytes] = []
        for turn in range(12):
            publish(5)
            for _ in range((turn * 7) % 11):
                if len(got) < len(expected):
                    got.append((await reader.read_next(60_000)).data())
            if turn % 3:
                broker.break_streams()
            else:
                await broker.unload("t")
            for _ in range(turn):
                await asyncio.sleep(0)
        while len(got) < len(expected):
            got.append((await reader.read_next(60_000)).data())
        assert got == expected
        assert not await reader.has_message_available()


async def test_a_reader_that_has_read_nothing_skips_nothing_during_a_disconnect() -> None:
    """SUB-7: a reader that began at the end of the topic continues there, not at the end that the topic has by then."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        topic.publish(b"old")
        reader = await client.create_reader("t", MessageId.latest)
        broker.break_streams()
        await until(lambda: not reader.is_connected(), "it is disconnected")
        topic.publish(b"new")
        assert (await reader.read_next(60_000)).data() == b"new"


async def test_a_disconnect_during_has_message_available_does_not_make_read_messages_available() -> None:
    """CON-11"""
    async with client_of() as (broker, client):
        for count in (1, 3):
            broker.topic("t").publish(*[b"x"] * count)
            for steps in range(30):
                reader = await client.create_reader("t", MessageId.earliest)
                while await reader.has_message_available():
                    await reader.read_next()
                asking = asyncio.create_task(reader.has_message_available())
                for _ in range(steps):
                    await asyncio.sleep(0)
                broker.break_streams()
                assert not await asking
                assert not await reader.has_message_available()
                await reader.close()


async def test_a_reader_reads_all_partitions_and_can_t_start_at_the_id_of_a_message_in_one() -> None:
    async with client_of() as (broker, client):
        broker.partitioned[P + "t"] = 2
        for index in range(2):
            broker.topic(f"t-partition-{index}").publish(b"%d" % index)
        reader = await client.create_reader("t", MessageId.earliest)
        got = []
        while await reader.has_message_available():
            got.append((await reader.read_next()).data())
        assert sorted(got) == [b"0", b"1"]
        for wrong in (MessageId(0, 7, 0), "earliest", None):
            with pytest.raises(InvalidConfiguration):
                await client.create_reader("t", wrong)  # type: ignore[arg-type]


async def test_reader_listener_receives_all_messages_and_closed_reader_raises() -> None:
    """CON-2"""
    async with client_of() as (broker, client):
        got = []
        reader = await client.create_reader(
            "t", MessageId.earliest, reader_listener=lambda _, message: got.append(message.data())
        )
        with pytest.raises(InvalidConfiguration):
            await reader.read_next()
        broker.topic("t").publish(b"a", b"b")
        await until(lambda: got == [b"a", b"b"], "both were read")
        await reader.close()
        with pytest.raises(AlreadyClosed):
            await reader.has_message_available()


@pytest.mark.parametrize("batches", [False, True])
async def test_a_reader_returns_prefetched_messages_that_were_trimmed_during_a_disconnect(batches: bool) -> None:
    """SUB-7, CON-11: no message that was delivered is skipped."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        numbers = iter(range(1000))
        for _ in range(20):
            topic.publish(*(b"%d" % next(numbers) for _ in range(3 if batches else 1)))
        reader = await client.create_reader("t", MessageId.earliest, receiver_queue_size=100)
        got = [(await reader.read_next(60_000)).data() for _ in range(4)]
        part = reader._core.partitions[0]
        await until(lambda: part.position.last_delivered == topic.log.last, "all others are prefetched")
        for _ in range(3):
            assert await reader.has_message_available()
            streams = broker.streams
            broker.break_streams()
            topic.log.entries.clear()
            await until(partial(_is_reconnected, broker, streams, reader), "it is connected again")
            got.append((await reader.read_next(60_000)).data())
        topic.publish(*(b"%d" % next(numbers) for _ in range(3 if batches else 1)))
        while await reader.has_message_available():
            got.append((await reader.read_next(60_000)).data())
        assert got == [b"%d" % number for number in range(next(numbers))]
        for index in range(300):
            topic.publish(b"%d" % index)
            assert (await reader.read_next(60_000)).data() == b"%d" % index


@pytest.mark.parametrize("queue_size", [0, 1, 1000])
async def test_an_available_message_is_read_though_the_broker_disconnects_and_trims_it(queue_size: int) -> None:
    """CON-11: at any moment."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        reader = await client.create_reader("t", MessageId.latest, receiver_queue_size=queue_size)
        found = set()
        for steps in range(0, 60, 3):
            topic.publish(b"x")
            asking = asyncio.create_task(reader.has_message_available())
            for _ in range(steps):
                await asyncio.sleep(0)
            broker.break_streams()
            topic.log.entries.clear()
            found.add(available := await asking)
            if available:
                await asyncio.wait_for(reader.read_next(), 60)
            assert not await reader.has_message_available()
        assert found == {True, False}


async def test_a_recreated_topic_is_read_from_its_first_message_and_the_old_queue_is_dropped() -> None:
    """TOP-7"""
    async with client_of() as (broker, client):
        old = broker.topic("t")
        for _ in range(3):
            old.publish(b"old")
        reader = await client.create_reader("t", MessageId.earliest)
        await until(lambda: reader._core.partitions[0].position.last_delivered == old.log.last, "all are prefetched")
        await broker.delete("t")
        broker.topic("t").publish(b"new")
        await until(
            lambda: reader._core.partitions[0]._incarnation == broker.topic("t").log.incarnation, "it is noticed"
        )
        assert (await reader.read_next(60_000)).data() == b"new"
        assert not await reader.has_message_available()


async def test_a_reader_starts_with_the_last_message() -> None:
    """CON-11: `latest`, inclusive."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for last in ((), (b"0",), (b"1", b"2", b"3")):
            if last:
                topic.publish(*last)
            reader = await client.create_reader("t", MessageId.latest, start_message_id_inclusive=True)
            got = []
            while await reader.has_message_available():
                got.append((await reader.read_next(60_000)).data())
            assert got == list(last[-1:])
            await reader.close()
