"""Finding who serves a topic, while brokers stand still, are away, or have lost it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar import aio, exceptions
from magnetar._lookup import PATIENCE_S, REPEAT_LOOKUP_S
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
    """How many seconds of the clock the task took."""
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
    """They share their topics."""
    transport = InProcessTransport(clock)
    one, other = await kind("one:1").start(transport), await kind("other:1").start(transport)
    other.topics = one.topics
    yield one, other, transport
    await one.stop()
    await other.stop()


async def test_a_broker_that_is_silent_costs_a_question_no_more_than_a_moment() -> None:
    """PRD-9: of a half-open connection only silence comes. The next broker is asked besides, and first from then on; an
    answer that takes its time is not lost."""
    clock = ManualClock()
    async with two_brokers(clock) as (one, other, transport):
        one.owner = other.owner = "owner:1"
        made = core_of(transport, "one:1", "other:1", clock=clock)
        one.answering_calls.clear()
        asking = asyncio.get_running_loop().create_task(made.lookup.find_owner(TOPIC))
        assert PATIENCE_S <= await pass_time(clock, asking) < PATIENCE_S + 0.2
        assert asking.result() == "owner:1"
        asking = asyncio.get_running_loop().create_task(made.lookup.find_owner(TOPIC))
        assert await pass_time(clock, asking) < 0.1, "who has answered is asked first"
        assert len(one.calls) == 1
        # Both are slow: what comes first counts, though it comes from the one that was asked first.
        other.answering_calls.clear()
        asking = asyncio.get_running_loop().create_task(made.lookup.find_owner(TOPIC))
        for _ in range(40):
            await asyncio.sleep(0)
            clock.advance(0.05)
        assert not asking.done()
        other.answering_calls.set()
        assert await pass_time(clock, asking) < 0.1
        assert asking.result() == "owner:1"
        one.answering_calls.set()
        await made.shutdown()


async def test_a_question_takes_no_longer_than_an_operation_may() -> None:
    clock = ManualClock()
    async with two_brokers(clock) as (one, other, transport):
        made = core_of(transport, "one:1", "other:1", clock=clock, operation_timeout_seconds=3)
        one.answering_calls.clear()
        other.answering_calls.clear()
        for ask in (made.lookup.find_owner, made.lookup.count_partitions, made.lookup.last_message):
            asking: asyncio.Task[Any] = asyncio.get_running_loop().create_task(ask(TOPIC))
            assert 2.5 < await pass_time(clock, asking) < 4.5
            with pytest.raises(exceptions.ConnectError):
                asking.result()
        one.answering_calls.set()
        other.answering_calls.set()
        await made.shutdown()


async def test_what_a_broker_refuses_for_good_is_not_asked_elsewhere() -> None:
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
async def test_a_topic_that_moves_away_from_a_silent_broker_is_followed(kind: str) -> None:
    """OWN-2 as a client meets it: the broker that a lookup named stands still, and loses the topic; nobody waits there
    for as long as an operation may take."""
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
        for _ in range(100):  # as long as nobody else has it, the silent one is waited for
            for _ in range(20):
                await asyncio.sleep(0)
            clock.advance(0.05)
        assert not opening.done()
        one.owner = other.owner = other.address
        assert await pass_time(clock, opening) < 2 * REPEAT_LOOKUP_S
        assert opening.result().is_connected()
        one.answering.set()  # it answers late, and nobody cares
        for _ in range(50):
            await asyncio.sleep(0)
        assert opening.result().is_connected()
        closing = asyncio.get_running_loop().create_task(client.close())
        await pass_time(clock, closing)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_every_lookup_names_the_listener() -> None:
    """OWN-1: a client says by which of a broker's addresses it reaches it."""
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


async def test_nothing_is_kept_of_brokers_that_are_gone() -> None:
    """A client that lives for long: each broker that takes the topic over has an address of its own, and goes."""
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
async def test_a_broker_without_the_listener_is_an_error_at_first_and_passes_later(kind: str) -> None:
    """OWN-1: for a newcomer the listener's name is wrong. Who was open waits until the topic is at a broker that has
    it: listeners may be changed one broker after the other."""
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
        with pytest.raises(exceptions.InvalidArgument):  # asked behind it, so it was told that, too
            await make()
        broker.problems.clear()
        await until(made.is_connected, "it is open again")
        if kind == "producer":
            await made.send(b"x")
    await broker.stop()


async def test_what_is_wrong_is_told_of_every_broker_that_was_asked() -> None:
    transport = InProcessTransport()
    made = core_of(transport, "one:1", "two:1", "three:1", operation_timeout_seconds=0.2)
    with pytest.raises(exceptions.ConnectError, match=r"(?s)(?=.*one:1)(?=.*two:1)(?=.*three:1)"):
        await made.lookup.find_owner(TOPIC)
    await made.shutdown()
