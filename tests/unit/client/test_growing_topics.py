"""Partitioned topics that grow while producers and consumers are open, as the client notices it and acts."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from magnetar import ConsumerType
from magnetar._connections.growth_watch import GrowthWatch
from magnetar._producing.outgoing_message import OutgoingMessage
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from tests.running import until
from tests.unit.client.consume_scene import client_of, payloads, receive
from tests.unit.client.scene import scene
from tests.unit.client.test_lookup import pass_time

NAME = "persistent://public/default/p"
T = "persistent://public/default/t"


def core(opened: Any) -> Any:
    return opened._core


def report(opened: Any, partitions: int) -> None:
    """What a broker's report causes."""
    core(opened)._growth.report(partitions)


async def test_new_partitions_are_used() -> None:
    """TOP-3, PRD-10, CHK-56: an open producer uses partitions that are created later."""
    clock = ManualClock()
    async with scene(clock) as (broker, client):
        broker.partitioned[NAME] = 1
        producer = await client.create_producer("p", auto_update_partitions_interval_seconds=60)
        assert (await producer.send(b"x")).partition() == 0
        broker.partitioned[NAME] = 3
        for _ in range(5):
            await asyncio.sleep(0)
        clock.advance(61)
        await until(lambda: len(broker.opened) == 3, "the new partitions are open")
        await until(lambda: len(core(producer).partitions) == 3, "and used")
        assert {(await producer.send(b"x")).partition() for _ in range(3)} == {0, 1, 2}
        await producer.close()


async def test_pending_messages_stay_in_their_partition_when_the_topic_grows() -> None:
    """CHK-56: messages that are pending when the topic grows stay in their partition, also over a reconnect. Only later
    messages are routed over all partitions."""
    clock = ManualClock()
    async with scene(clock) as (broker, client):
        broker.partitioned[NAME] = 1
        producer = await client.create_producer("p", auto_update_partitions_interval_seconds=60, send_timeout_millis=0)
        first = f"{NAME}-partition-0"
        broker.problems[first] = ErrorCode.SERVICE_NOT_READY
        broker.end_producers(broker.topic(first), ErrorCode.SERVICE_NOT_READY)
        await until(lambda: not producer.is_connected(), "it is disconnected")
        keys = [f"key {number}" for number in range(20)]
        early = [asyncio.create_task(producer.send(b"early", partition_key=key)) for key in keys]
        await asyncio.sleep(0)
        broker.partitioned[NAME] = 4
        clock.advance(61)
        await until(lambda: len(core(producer).partitions) == 4, "it has grown")
        late = [asyncio.create_task(producer.send(b"late", partition_key=key)) for key in keys]
        broker.problems.clear()
        await pass_time(clock, asyncio.ensure_future(asyncio.gather(*early, *late)))
        assert {(await task).partition() for task in early} == {0}
        assert {(await task).partition() for task in late} == {0, 1, 2, 3}
        for index in range(1, 4):
            assert b"early" not in broker.topic(f"p-partition-{index}").payloads()


async def test_new_partitions_are_read_from_their_first_message() -> None:
    """TOP-3 (the client's part), CHK-56"""
    async with client_of() as (broker, client):
        broker.partitioned[T] = 1
        consumer = await client.subscribe("t", "s", auto_update_partitions_interval_seconds=0.02)
        broker.topic("t-partition-1").publish(b"before it was noticed")
        broker.partitioned[T] = 3
        assert payloads(await receive(consumer, 1)) == [b"before it was noticed"]
        broker.topic("t-partition-2").publish(b"and this")
        assert payloads(await receive(consumer, 1)) == [b"and this"]


async def test_an_open_batch_goes_to_its_partition_when_the_topic_grows() -> None:
    """CHK-56: routed before the growth; with keys, too."""
    clock = ManualClock()
    async with scene(clock) as (broker, client):
        broker.partitioned[NAME] = 1
        producer = await client.create_producer("p", batching_max_publish_delay_ms=600_000, batching_max_messages=50)
        queue = core(producer).partitions[0].queue
        for number in range(20):
            queue.add_message(OutgoingMessage(b"early", f"key {number}", size=30))
        broker.partitioned[NAME] = 4
        report(producer, 4)
        await until(lambda: len(core(producer).partitions) == 4, "it has grown")
        await producer.flush()
        assert [len(broker.topic(f"p-partition-{index}").payloads()) for index in range(4)] == [20, 0, 0, 0]


async def test_a_producer_that_cannot_open_a_new_partition_uses_none_yet_and_retries() -> None:
    """CHK-56, TOP-3: it goes on with the old partitions. Nothing stays open of an attempt that failed."""
    clock = ManualClock()
    async with scene(clock) as (broker, client):
        broker.partitioned[NAME] = 1
        producer = await client.create_producer("p", producer_name="mine")
        broker.partitioned[NAME] = 4
        broker.problems[f"{NAME}-partition-2"] = ErrorCode.NOT_ALLOWED
        report(producer, 4)
        await until(lambda: broker.calls.count("lookup") >= 4, "it has tried to open them")
        names = [f"p-partition-{index}" for index in (1, 3)]
        await until(lambda: not any(broker.topic(name).producers for name in names), "none is open")
        assert (await producer.send(b"x", partition_key="k")).partition() == 0
        broker.problems.clear()
        grown = asyncio.create_task(until(lambda: len(core(producer).partitions) == 4, "all are open"))
        assert await pass_time(clock, grown) < 55, "long before the interval"
        assert {(await producer.send(b"x")).partition() for _ in range(4)} == {0, 1, 2, 3}


async def test_a_consumer_reads_the_new_partitions_that_can_be_opened_and_retries_the_others() -> None:
    """CHK-56, TOP-3"""
    async with client_of() as (broker, client):
        broker.partitioned[T] = 1
        consumer: Any = await client.subscribe("t", "s")
        broker.partitioned[T] = 4
        broker.problems[f"{T}-partition-2"] = ErrorCode.NOT_ALLOWED
        for index in range(1, 4):
            broker.topic(f"t-partition-{index}").publish(b"%d" % index)
        report(consumer, 4)
        assert sorted(payloads(await receive(consumer, 2))) == [b"1", b"3"]
        broker.problems.clear()
        assert payloads(await receive(consumer, 1)) == [b"2"]
        await consumer.close()
        for index in range(4):
            subscriptions = broker.topic(f"t-partition-{index}").subscriptions
            await until(partial(lambda one: one.consumers == 0, subscriptions), "no consumer is left")


async def test_closing_while_the_topic_grows_leaves_nothing_open() -> None:
    """TOP-3: at any step of the growth."""
    async with scene() as (broker, client):
        for steps in range(0, 40, 2):
            broker.partitioned[NAME] = 1
            producer = await client.create_producer("p")
            broker.partitioned[NAME] = 3
            report(producer, 3)
            for _ in range(steps):
                await asyncio.sleep(0)
            await producer.close()
            await until(lambda: not any(topic.producers for topic in broker.topics.values()), "no producer is left")
    async with client_of() as (memory, client):
        for steps in range(0, 40, 2):
            memory.partitioned[T] = 1
            consumer: Any = await client.subscribe("t", "s", ConsumerType.Failover)
            memory.partitioned[T] = 3
            report(consumer, 3)
            for _ in range(steps):
                await asyncio.sleep(0)
            await consumer.close()
            found = [topic.subscriptions for topic in memory.topics.values()]
            await until(partial(lambda all: not any(one.consumers for one in all), found), "no consumer is left")


async def test_a_growth_that_was_reported_is_looked_for_until_it_is_found() -> None:
    """TOP-3: other brokers may know it later; but it is not looked for all the time if it is never found."""
    clock, counts, looked = ManualClock(), [1, 1, 3], list[float]()

    async def open_new() -> int | None:
        looked.append(clock.monotonic())
        return counts.pop(0) if counts else 3

    watch = GrowthWatch(clock, SeededRandomness(1), 1_000, open_new)
    running = asyncio.create_task(watch.run())
    for reported, expected in ((3, 3), (9, 20)):
        looked.clear()
        watch.report(reported)
        for _ in range(900):
            for _ in range(3):
                await asyncio.sleep(0)
            clock.advance(0.5)
        assert len(looked) == expected
        assert looked[-1] - looked[0] < 50
    running.cancel()
    await asyncio.wait([running])
