"""Back-pressure of the asyncio producer: awaiting `send` waits for capacity."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar import aio
from magnetar._producing.outgoing_message import OutgoingMessage
from magnetar.exceptions import AlreadyClosed, MessageTooBig
from tests.running import until
from tests.unit.client.fake_broker import FakeBroker, Topic
from tests.unit.client.scene import scene

PARTED = "persistent://public/default/p"


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def send_all(producer: aio.Producer, payloads: list[bytes]) -> list[asyncio.Task[Any]]:
    return [asyncio.get_running_loop().create_task(producer.send(payload)) for payload in payloads]


async def test_any_number_of_sends_is_gathered_with_default_options() -> None:
    """PRD-1, PRD-10: more than the maximum of pending messages, in the order of the calls."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t")
        ids = await asyncio.gather(*(producer.send(payload) for payload in numbers(0, 5_000)))
        assert broker.topic("t").payloads() == numbers(0, 5_000)
        assert ids == sorted(ids)
        assert len(set(ids)) == 5_000


@pytest.mark.parametrize(("count", "entries"), [(1_000, 1), (2_000, 2), (20_000, 20)])
async def test_sends_that_wait_for_capacity_share_batches(count: int, entries: int) -> None:
    """PRD-1, PRD-4: freed capacity is filled by all sends that fit at once, not by one for each step of the loop."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t")
        await asyncio.gather(*(producer.send(payload) for payload in numbers(0, count)))
        topic = broker.topic("t")
        assert topic.payloads() == numbers(0, count)
        assert len(topic.entries) == entries


async def test_sends_that_wait_share_batches_if_several_batches_can_be_pending() -> None:
    """PRD-1, PRD-4: capacity comes back one batch at a time, and sends move on when half of it is free."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t", batching_max_messages=100)
        await asyncio.gather(*(producer.send(payload) for payload in numbers(0, 5_000)))
        assert broker.topic("t").payloads() == numbers(0, 5_000)
        assert len(broker.topic("t").entries) == 50


async def test_a_cancelled_send_or_flush_leaves_nothing_behind_while_the_queue_is_full() -> None:
    """PRD-1: an application that cancels sends while no broker answers does not fill its memory with them."""
    async with scene() as (broker, client):
        broker.receipting.clear()
        producer = await client.create_producer("t", max_pending_messages=1)
        tasks = send_all(producer, numbers(0, 2))
        await until(lambda: len(broker.topic("t").payloads()) == 1, "one was accepted")
        cancelled = send_all(producer, numbers(2, 50))
        cancelled += [asyncio.get_running_loop().create_task(producer.flush()) for _ in range(50)]
        await asyncio.sleep(0)
        for task in cancelled:
            task.cancel()
        await asyncio.wait(cancelled)
        await asyncio.sleep(0)
        (waiting,) = producer._waiting.values()
        assert len(waiting._line) == 1
        broker.receipting.set()
        await asyncio.gather(*tasks)
        assert not waiting


async def test_sends_in_many_tasks_keep_the_order_of_the_calls() -> None:
    """PRD-10: later calls do not overtake those that wait, whenever capacity comes."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t", max_pending_messages=3, batching_max_messages=2)
        tasks: list[asyncio.Future[Any]] = []
        for number in range(200):
            tasks += send_all(producer, numbers(number, number + 1))
            for _ in range(number % 4):
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert broker.topic("t").payloads() == numbers(0, 200)


async def test_pending_messages_are_limited_in_bytes_too() -> None:
    """PRD-1"""
    async with scene() as (broker, client):
        broker.receipting.clear()
        producer = await client.create_producer("t", max_pending_bytes=10_000)
        tasks = send_all(producer, [b"x" * 4_000] * 6)
        await until(lambda: len(broker.topic("t").payloads()) == 2, "two fit")
        broker.receipting.set()
        await asyncio.gather(*tasks)
        assert len(broker.topic("t").payloads()) == 6


@pytest.mark.parametrize("which", range(4))
async def test_a_cancelled_send_that_waits_is_withdrawn_whole(which: int) -> None:
    """PRD-1: the first that waits, one in the middle, the last, or all."""
    async with scene() as (broker, client):
        broker.receipting.clear()
        producer = await client.create_producer("t", max_pending_messages=2)
        tasks = send_all(producer, numbers(0, 6))
        await until(lambda: len(broker.topic("t").payloads()) == 2, "two were accepted")
        cancelled = {0: [2], 1: [3], 2: [5], 3: [2, 3, 4, 5]}[which]
        for index in cancelled:
            tasks[index].cancel()
        late = send_all(producer, [b"late"])
        broker.receipting.set()
        done = await asyncio.gather(*tasks, *late, return_exceptions=True)
        assert [index for index, one in enumerate(done) if isinstance(one, BaseException)] == cancelled
        left = [payload for index, payload in enumerate(numbers(0, 6)) if index not in cancelled]
        assert broker.topic("t").payloads() == [*left, b"late"]
        await producer.flush()


async def test_a_cancelled_send_passes_the_capacity_on() -> None:
    """PRD-1: it is cancelled at the moment in which there is capacity again."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t", max_pending_messages=1)
        broker.receipting.clear()
        first, second, third = send_all(producer, numbers(0, 3))
        await until(lambda: len(broker.topic("t").payloads()) == 1, "one was accepted")
        first.add_done_callback(lambda _: second.cancel())
        broker.receipting.set()
        await first
        await third
        await asyncio.wait([second])
        assert broker.topic("t").payloads() in (numbers(0, 3), [b"0", b"2"])
        await producer.send(b"3")


async def test_flush_waits_behind_the_sends_in_line() -> None:
    """PRD-1"""
    async with scene() as (broker, client):
        producer = await client.create_producer("t", max_pending_messages=5)
        tasks = send_all(producer, numbers(0, 30))
        await asyncio.sleep(0)
        await producer.flush()
        assert broker.topic("t").payloads() == numbers(0, 30)
        await asyncio.gather(*tasks)


async def test_sends_that_wait_fail_when_their_producer_is_closed() -> None:
    """PRD-1"""
    async with scene() as (broker, client):
        producer = await client.create_producer("t", max_pending_messages=2)
        broker.receipting.clear()
        tasks = send_all(producer, numbers(0, 6))
        await until(lambda: len(broker.topic("t").payloads()) == 2, "two were accepted")
        closing = asyncio.get_running_loop().create_task(producer.close())
        done = await asyncio.gather(*tasks[2:], return_exceptions=True)
        assert [type(one) for one in done] == [AlreadyClosed] * 4
        broker.receipting.set()
        await closing
        await asyncio.gather(*tasks[:2])
        assert broker.topic("t").payloads() == numbers(0, 2)


def parts(broker: FakeBroker, count: int) -> list[Topic]:
    return [broker.topic(f"{PARTED}-partition-{index}") for index in range(count)]


async def test_sends_to_a_partition_that_is_opened_lazily_keep_their_order() -> None:
    """PRD-10: sends from the time of the opening are sent before those from the moment in which it is open. Sends to
    another partition do not wait."""
    async with scene() as (broker, client):
        broker.partitioned[PARTED] = 2
        producer = await client.create_producer("p", lazy_start_partitioned_producers=True)
        keys = {producer._core.route(OutgoingMessage(b"", key)): key for key in map(str, range(20))}
        open_key, closed_key = (keys[part] for part in sorted(keys, key=lambda part: not part.was_opened))
        broker.answering.clear()
        part = next(part for part in keys if not part.was_opened)
        tasks: list[asyncio.Future[Any]] = []

        async def send_when_open() -> None:
            while not part.was_opened:
                await asyncio.sleep(0)
            tasks.extend(asyncio.ensure_future(producer.send(p, partition_key=closed_key)) for p in numbers(50, 90))

        late = asyncio.get_running_loop().create_task(send_when_open())
        for payload in numbers(0, 50):
            tasks.append(asyncio.ensure_future(producer.send(payload, partition_key=closed_key)))  # noqa: PERF401
        await asyncio.sleep(0)
        broker.answering.set()
        await producer.send(b"other", partition_key=open_key)
        await late
        await asyncio.gather(*tasks)
        assert sorted(len(topic.payloads()) for topic in parts(broker, 2)) == [1, 90]
        assert numbers(0, 90) in [topic.payloads() for topic in parts(broker, 2)]


async def test_sends_that_wait_for_a_partition_to_open_fail_when_their_client_is_shut_down() -> None:
    """PRD-1: they fail. They are not cancelled, because the application has not cancelled them."""
    async with scene() as (broker, client):
        broker.partitioned[PARTED] = 2
        producer = await client.create_producer(PARTED, lazy_start_partitioned_producers=True)
        keys = {producer._core.route(OutgoingMessage(b"", key)): key for key in map(str, range(20))}
        closed_key = next(key for part, key in keys.items() if not part.was_opened)
        broker.answering.clear()
        tasks = [
            asyncio.get_running_loop().create_task(producer.send(payload, partition_key=closed_key))
            for payload in numbers(0, 5)
        ]
        await until(lambda: len(broker.opened) == 2, "the partition is being opened")
        client.shutdown()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in done] == [AlreadyClosed] * 5


async def test_a_message_that_is_too_large_is_refused_while_others_wait() -> None:
    async with scene() as (broker, client):
        producer = await client.create_producer("t", max_pending_messages=1)
        broker.receipting.clear()
        tasks = send_all(producer, numbers(0, 3))
        await asyncio.sleep(0)
        with pytest.raises(MessageTooBig):
            await producer.send(b"x" * 6 * 1024 * 1024)
        broker.receipting.set()
        await asyncio.gather(*tasks)
        assert broker.topic("t").payloads() == numbers(0, 3)
