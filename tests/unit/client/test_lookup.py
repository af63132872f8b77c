"""Lookups while brokers hang, are down, or have lost the topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar import aio, exceptions
from magnetar._connections.lookup import PATIENCE_S, REPEAT_LOOKUP_S
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.in_process_transport import InProcessTransport
from tests.running import until
from tests.unit.client.consume_scene import MemoryBroker
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.scene import URL, core_of, scene

TOPIC = "persistent://public/default/t"


async def pass_time(clock: ManualClock, until_done: asyncio.Task[Any], step_s: float = 0.05) -> float:
    """Move the clock until the task is done, and return how many seconds it took."""
    began = clock.monotonic()
    for _ in range(5_000):
        for _ in range(20):
            await asyncio.sleep(0)
        if until_done.done():
            break
        clock.advance(step_s)
    return clock.monotonic() - began


@asynccontextmanager
async def two_brokers(clock: ManualClock, kind: Any = FakeBroker) -> AsyncIterator[tuple[Any, Any, InProcessTransport]]:
    """Yield two brokers that share their topics."""
    transport = InProcessTransport(clock)
    one, other = await kind("one:1").start(transport), await kind("other:1").start(transport)
    other.topics = one.topics
    yield one, other, transport
    await one.stop()
    await other.stop()


async def test_a_silent_broker_delays_a_lookup_by_a_moment_only() -> None:
    """PRD-9: nothing comes from a half-open connection. The next broker gets the lookup as well, and gets later lookups
    first. A slow answer still counts."""
    clock = ManualClock()
    async with two_brokers(clock) as (one, other, transport):
        one.owner = other.owner = "owner:1"
        made = core_of(transport, "one:1", "other:1", clock=clock)
        one.answering_calls.clear()
        lookup = asyncio.get_running_loop().create_task(made.lookup.find_owner(TOPIC))
        assert PATIENCE_S <= await pass_time(clock, lookup) < PATIENCE_S + 0.2
        assert lookup.result() == "owner:1"
        lookup = asyncio.get_running_loop().create_task(made.lookup.find_owner(TOPIC))
        assert await pass_time(clock, lookup) < 0.1, "the broker that has answered comes first"
        assert len(one.calls) == 1
        # Both are slow. The first answer counts, though it comes from the broker that was tried first.
        other.answering_calls.clear()
        lookup = asyncio.get_running_loop().create_task(made.lookup.find_owner(TOPIC))
        for _ in range(40):
            await asyncio.sleep(0)
            clock.advance(0.05)
        assert not lookup.done()
        other.answering_calls.set()
        assert await pass_time(clock, lookup) < 0.1
        assert lookup.result() == "owner:1"
        one.answering_calls.set()
        await made.shutdown()


async def test_lookups_end_at_the_operation_s_timeout() -> None:
    clock = ManualClock()
    async with two_brokers(clock) as (one, other, transport):
        made = core_of(transport, "one:1", "other:1", clock=clock, operation_timeout_seconds=3)
        one.answering_calls.clear()
        other.answering_calls.clear()
        for method in (made.lookup.find_owner, made.lookup.count_partitions, made.lookup.last_message):
            lookup: asyncio.Task[Any] = asyncio.get_running_loop().create_task(method(TOPIC))
            assert 2.5 < await pass_time(clock, lookup) < 4.5
            with pytest.raises(exceptions.ConnectError):
                lookup.result()
        one.answering_calls.set()
        other.answering_calls.set()
        await made.shutdown()


async def test_an_error_that_is_not_retryable_ends_a_lookup() -> None:
    clock = ManualClock()
    async with two_brokers(clock) as (one, other, transport):
        made = core_of(transport, "one:1", "other:1", clock=clock)
        one.problems[TOPIC] = ErrorCode.TOPIC_NOT_FOUND
        with pytest.raises(exceptions.TopicNotFound):
            await made.lookup.find_owner(TOPIC)
        assert not other.calls
        one.problems[TOPIC] = ErrorCode.SERVICE_NOT_READY
        assert await made.lookup.find_owner(TOPIC) == other.address
        await made.shutdown()


@pytest.mark.parametrize("kind", ["producer", "consumer"])
async def test_a_topic_that_moves_away_from_a_silent_broker_is_found(kind: str) -> None:
    """OWN-2: the owner hangs, and loses the topic while a client waits for it. The client does not wait there until the
    operation's timeout."""
    clock = ManualClock()
    brokers: Any = FakeBroker if kind == "producer" else MemoryBroker
    async with two_brokers(clock, brokers) as (one, other, transport):
        one.answering.clear()
        one.owner = other.owner = one.address
        client = aio.Client(
            "magnetar://one:1,other:1", _transport=transport, _clock=clock, _randomness=SeededRandomness(1)
        )
        making = client.create_producer("t") if kind == "producer" else client.subscribe("t", "s")
        opening: asyncio.Task[Any] = asyncio.get_running_loop().create_task(making)
        for _ in range(100):  # the client waits for the silent broker while that is the owner
            for _ in range(20):
                await asyncio.sleep(0)
            clock.advance(0.05)
        assert not opening.done()
        one.owner = other.owner = other.address
        assert await pass_time(clock, opening) < 2 * REPEAT_LOOKUP_S
        assert opening.result().is_connected()
        one.answering.set()  # its late answer has no effect
        for _ in range(50):
            await asyncio.sleep(0)
        assert opening.result().is_connected()
        closing = asyncio.get_running_loop().create_task(client.close())
        await pass_time(clock, closing)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_every_lookup_names_the_listener() -> None:
    """OWN-1: a client names the listener whose addresses it can reach."""
    async with scene(listener_name="external") as (broker, client):
        producer = await client.create_producer("t")
        await producer.send(b"1")
        broker.end_producers(broker.topic("t"), ErrorCode.SERVICE_NOT_READY)
        await producer.send(b"2")
        assert len(broker.listener_names) >= 2
        assert set(broker.listener_names) == {"external"}
    async with scene() as (broker, client):
        await client.create_producer("t")
        assert set(broker.listener_names) == {""}


async def test_connections_to_former_brokers_are_closed() -> None:
    """In a client that runs for long, each broker that takes the topic over has another address, and stops later."""
    async with scene() as (broker, client):
        transport = broker.transport
        assert transport is not None
        producer = await client.create_producer("t")
        before: FakeBroker | None = None
        for number in range(8):
            following = FakeBroker(f"pod-{number}:1")
            following.topics = broker.topics
            await following.start(transport)
            broker.owner = following.address
            if before is None:
                broker.end_producers(broker.topic("t"), ErrorCode.SERVICE_NOT_READY)
            else:
                await before.stop()
            await producer.send(b"%d" % number)
            before = following
        made = client._core.pool  # type: ignore[union-attr]
        assert list(made._connections) == [broker.address, "pod-7:1"]
        assert list(made._streams) == [(broker.address, "produce"), ("pod-7:1", "produce")]
        assert not made._calls
        assert broker.topic("t").payloads() == [b"%d" % number for number in range(8)]
        assert before is not None
        await before.stop()


@pytest.mark.parametrize("kind", ["producer", "consumer"])
async def test_a_missing_listener_is_an_error_at_first_and_retryable_later(kind: str) -> None:
    """OWN-1: for a new producer the listener's name is wrong. One that was open waits until the topic is at a broker
    that has the listener, because listeners may be changed one broker after the other."""
    transport = InProcessTransport()
    broker: Any = await (FakeBroker() if kind == "producer" else MemoryBroker()).start(transport)
    async with aio.Client(URL, _transport=transport, listener_name="external") as client:

        async def make() -> Any:
            return await (client.create_producer("t") if kind == "producer" else client.subscribe("t", "s"))

        broker.problems[TOPIC] = ErrorCode.INVALID_ARGUMENT
        with pytest.raises(exceptions.InvalidArgument):
            await make()
        broker.problems.clear()
        made = await make()
        broker.problems[TOPIC] = ErrorCode.INVALID_ARGUMENT
        if kind == "producer":
            broker.end_producers(broker.topic("t"), ErrorCode.SERVICE_NOT_READY)
        else:
            await broker.unload("t")
        await until(lambda: not made.is_connected(), "it is ended")
        with pytest.raises(exceptions.InvalidArgument):  # its lookup comes after the other's, which got the same error
            await make()
        broker.problems.clear()
        await until(made.is_connected, "it is open again")
        if kind == "producer":
            await made.send(b"x")
    await broker.stop()


async def test_the_error_names_every_broker() -> None:
    transport = InProcessTransport()
    made = core_of(transport, "one:1", "two:1", "three:1", operation_timeout_seconds=0.2)
    with pytest.raises(exceptions.ConnectError, match=r"(?s)(?=.*one:1)(?=.*two:1)(?=.*three:1)"):
        await made.lookup.find_owner(TOPIC)
    await made.shutdown()
