"""All brokers are away for a minute, of a clock that stands still until it is moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from magnetar import InitialPosition, MessageId, Result, aio, exceptions
from magnetar._connections.operations import LONGEST_PAUSE_S
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.in_process_transport import InProcessTransport
from tests.unit.client.consume_scene import ADDRESS, MemoryBroker
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.scene import URL, sync_scene
from tests.unit.client.sync_consume_scene import wait_until
from tests.unit.client.test_lookup import pass_time

MINUTE_S = 60


@asynccontextmanager
async def scene(kind: Any, clock: ManualClock, **options: Any) -> AsyncIterator[tuple[Any, aio.Client, _Counting]]:
    transport = _Counting(clock)
    broker = await kind().start(transport)
    client = aio.Client(URL, _transport=transport, _clock=clock, _randomness=SeededRandomness(1), **options)
    yield broker, client, transport
    client.shutdown()
    await client.close()
    await broker.stop()


class _Counting(InProcessTransport):
    """Counts lookups and attempts to open a stream."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.attempts = 0

    def connect(self, address: str) -> Any:
        connection = super().connect(address)
        call, open_stream = connection.call, connection.open_stream

        async def counted_call(method: str, request: bytes, *, timeout_s: float) -> bytes:
            self.attempts += 1
            return await call(method, request, timeout_s=timeout_s)

        def counted_stream(method: str) -> Any:
            self.attempts += 1
            return open_stream(method)

        connection.call, connection.open_stream = counted_call, counted_stream  # type: ignore[method-assign]
        return connection


async def minute(clock: ManualClock, seconds: float = MINUTE_S, each: Callable[[], object] = lambda: None) -> None:
    for _ in range(int(seconds / 0.1)):
        for _ in range(10):
            await asyncio.sleep(0)
        clock.advance(0.1)
        each()


async def test_sends_time_out_in_order_during_outage_and_producer_recovers() -> None:
    """PRD-9: typed, after the send timeout and not before; sends wait while the queue is full; what was sent when
    the brokers came back in time is stored. And nobody is hammered."""
    clock = ManualClock()
    async with scene(FakeBroker, clock) as (broker, client, transport):
        producer = await client.create_producer("t", max_pending_messages=100, batching_max_messages=10)
        await broker.stop()
        failed: list[tuple[int, float]] = []
        began = clock.monotonic()

        async def send(number: int) -> None:
            try:
                await producer.send(b"%d" % number)
            except exceptions.Timeout:
                failed.append((number, clock.monotonic() - began))

        early = [asyncio.create_task(send(number)) for number in range(100)]
        await asyncio.sleep(0)
        waiting = asyncio.create_task(producer.send(b"one too many"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        before = transport.attempts
        await minute(clock, 40)
        assert all(task.done() for task in early)
        assert [number for number, _ in failed] == list(range(100))
        assert {29 < after_s < 34 for _, after_s in failed} == {True}
        late = [asyncio.create_task(send(number)) for number in range(100, 150)]
        await minute(clock, 20)
        assert MINUTE_S / LONGEST_PAUSE_S - 1 <= transport.attempts - before <= 2 * MINUTE_S / LONGEST_PAUSE_S + 10
        await broker.start(transport)
        await minute(clock, 5)
        assert all(task.done() for task in late)
        assert len(failed) == 100
        assert broker.topic("t").payloads() == [b"%d" % number for number in range(100, 150)]


async def test_later_messages_fail_with_one_that_timed_out() -> None:
    """PRD-9, PRD-10: so that none of them is stored before the application sends the first one again."""
    clock = ManualClock()
    async with scene(FakeBroker, clock) as (broker, client, transport):
        producer = await client.create_producer("t")
        await broker.stop()
        first = asyncio.create_task(producer.send(b"first"))
        await minute(clock, 25)
        second = asyncio.create_task(producer.send(b"second"))
        await minute(clock, 10)
        with pytest.raises(exceptions.Timeout, match=r"no result within 30 s .* not stored"):
            await first
        with pytest.raises(exceptions.Timeout, match=r"no result for an earlier message within 30 s .* not stored"):
            await second
        await broker.start(transport)
        again = asyncio.gather(producer.send(b"first"), producer.send(b"second"))
        await minute(clock, 5)
        await again
        assert broker.topic("t").payloads() == [b"first", b"second"]


def test_send_callbacks_run_once_in_order_and_blocked_senders_resume() -> None:
    """PRD-1, PRD-9, of the synchronous client, with a short timeout: `block_if_queue_full` waits for capacity, which
    comes when the oldest has failed.
    """
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer(
            "t", send_timeout_millis=300, max_pending_messages=4, block_if_queue_full=True, batching_max_messages=2
        )
        producer.send(b"stored")
        made.on_loop(lambda broker: broker.answering.clear())
        made.run(made.broker.stop())
        results: list[tuple[int, Result]] = []

        def on_sent(number: int, result: Result, message_id: MessageId | None) -> None:
            results.append((number, result))

        for number in range(12):
            producer.send_async(b"%d" % number, partial(on_sent, number))
        with pytest.raises(exceptions.Timeout):
            producer.flush()
        assert results == [(number, Result.Timeout) for number in range(12)]
        made.on_loop(lambda broker: broker.answering.set())
        made.run(made.broker.start(made.transport))
        wait_until(producer.is_connected, "it has found the broker")
        producer.send(b"stored, too")
        assert made.on_loop(lambda broker: broker.topic("t").payloads()) == [b"stored", b"stored, too"]


@pytest.mark.parametrize("what", ["consumer", "reader"])
async def test_receiving_resumes_at_the_same_position_after_an_outage(what: str) -> None:
    """CON-2: without the application's help; a receive with a timeout ends in time, and one without waits. And no
    server is hammered.
    """
    clock = ManualClock()
    async with scene(MemoryBroker, clock) as (broker, client, transport):
        topic = broker.topic("t")
        topic.publish(b"0")
        one: Any
        if what == "consumer":
            one = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
            receive = one.receive
            await one.acknowledge(await receive(), receipt=True)
        else:
            one = await client.create_reader("t", aio.MessageId.earliest)
            receive = one.read_next
            assert (await receive()).data() == b"0"
        await broker.stop()
        topic.reload()
        before = transport.attempts
        waiting = asyncio.create_task(receive())
        bounded = asyncio.create_task(receive(500))
        assert 0.4 < await pass_time(clock, bounded) < 0.8
        with pytest.raises(exceptions.Timeout):
            bounded.result()
        await minute(clock)
        assert not waiting.done()
        assert transport.attempts - before <= 2 * MINUTE_S / LONGEST_PAUSE_S + 10
        topic.publish(b"1", b"2")
        await broker.start(transport)
        assert await pass_time(clock, waiting) <= LONGEST_PAUSE_S + 0.5
        assert waiting.result().data() == b"1"
        assert (await receive()).data() == b"2"


@pytest.mark.parametrize("pending", [False, True])
async def test_closing_while_all_brokers_are_away(pending: bool) -> None:
    """At once, where nothing is pending; else what is pending has its send timeout, and no more."""
    clock = ManualClock()
    async with scene(FakeBroker, clock) as (broker, client, _):
        producer = await client.create_producer("t", send_timeout_millis=5_000)
        await producer.send(b"x")
        await broker.stop()
        await minute(clock, 2)
        sending = [asyncio.create_task(producer.send(b"y"))] if pending else []
        await asyncio.sleep(0)
        closing = asyncio.create_task(client.close())
        took_s = await pass_time(clock, closing)
        assert 4 < took_s < 6 if pending else took_s < 0.5
        for task in sending:
            with pytest.raises((exceptions.Timeout, exceptions.AlreadyClosed)):
                await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_consumer_closes_at_once_while_all_brokers_are_away() -> None:
    clock = ManualClock()
    async with scene(MemoryBroker, clock) as (broker, client, _):
        broker.topic("t").publish(b"0")
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
        await consumer.acknowledge(await consumer.receive())
        await broker.stop()
        await minute(clock, 2)
        closing = asyncio.create_task(client.close())
        assert await pass_time(clock, closing) < 0.5


async def test_hundred_partitions_reconnect_without_flooding_the_broker() -> None:
    """Each looks for its broker at its own times, two seconds apart at most; and all find it."""
    clock = ManualClock()
    async with scene(FakeBroker, clock) as (broker, client, transport):
        broker.partitioned["persistent://public/default/p"] = 100
        producer = await client.create_producer("p")
        await broker.stop()
        before = transport.attempts
        await minute(clock, 20)
        assert transport.attempts - before <= 100 * (2 * 20 / LONGEST_PAUSE_S + 6)
        await broker.start(transport)
        await minute(clock, 5)
        assert producer.is_connected()
        assert broker.address == ADDRESS
