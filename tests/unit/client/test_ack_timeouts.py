"""Acknowledgement timeouts: redelivery of what the application has received and not acknowledged in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar import ConsumerType, InitialPosition, MultiplierRedeliveryBackoff
from magnetar.exceptions import InvalidConfiguration
from magnetar_testing.clock import ManualClock
from tests.unit.client.consume_scene import MemoryBroker, client_of, payloads, receive

TIMEOUT_S = 10.0
TICK_S = 1.0
TIMED: Any = {
    "initial_position": InitialPosition.Earliest,
    "unacked_messages_timeout_ms": 10_000,
    "ack_grouping_time_ms": 0,
}
IN_ORDER = [ConsumerType.Exclusive, ConsumerType.Failover]


async def let_pass(clock: ManualClock, seconds: float) -> None:
    """Advance the clock tick by tick, and let the client and the broker work in between."""
    for _ in range(round(seconds / TICK_S)):
        clock.advance(TICK_S)
        for _ in range(30):
            await asyncio.sleep(0)


def count_redeliveries(broker: MemoryBroker) -> int:
    return sum(len(one.redeliver) for one in broker.requests)


async def test_a_received_message_of_a_shared_subscription_is_redelivered_alone() -> None:
    """(CON-6): not before its time, and without the application's help; not those that were acknowledged, or
    prefetched and not received"""
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        for number in range(6):
            broker.topic("t").publish(b"%d" % number)
        consumer = await client.subscribe("t", "s", ConsumerType.Shared, **TIMED)
        messages = await receive(consumer, 4)
        await consumer.acknowledge(messages[1])
        await consumer.acknowledge(messages[3].message_id())
        await let_pass(clock, TIMEOUT_S)
        assert count_redeliveries(broker) == 0
        await let_pass(clock, 2 * TICK_S)
        again = await receive(consumer, 4)
        assert sorted(payloads(again)) == [b"0", b"2", b"4", b"5"]
        assert {one.data(): one.redelivery_count() for one in again} == {b"0": 1, b"2": 1, b"4": 0, b"5": 0}
        await consumer.acknowledge(again)
        await let_pass(clock, 3 * TIMEOUT_S)
        assert count_redeliveries(broker) == 1
        assert (clock.seconds_to_next_call() or 60) > TICK_S, "it ticks no more"


async def test_a_nack_of_an_earlier_delivery_does_not_end_the_timeout_of_the_next_one() -> None:
    """(CON-5, CON-6): the message was redelivered with everything else, and its application nacks the old delivery."""
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        broker.topic("t").publish(b"a")
        consumer = await client.subscribe("t", "s", ConsumerType.Shared, **TIMED)
        [old] = await receive(consumer, 1)
        consumer.redeliver_unacknowledged_messages()
        [new] = await receive(consumer, 1)
        assert new is not old
        await let_pass(clock, TICK_S)  # it is entered
        await consumer.negative_acknowledge(old)
        await let_pass(clock, TIMEOUT_S + 2 * TICK_S)
        assert count_redeliveries(broker) == 2, "of everything, and of what timed out"
        assert payloads(await receive(consumer, 1)) == [b"a"]


@pytest.mark.parametrize("kind", IN_ORDER)
async def test_everything_unacknowledged_of_an_ordered_subscription_is_redelivered_in_order(kind: ConsumerType) -> None:
    """(CON-6)"""
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        for number in range(6):
            broker.topic("t").publish(b"%d" % number)
        consumer = await client.subscribe("t", "s", kind, **TIMED)
        messages = await receive(consumer, 4)
        await consumer.acknowledge(messages[2])
        await consumer.acknowledge_cumulative(messages[0])
        await let_pass(clock, TIMEOUT_S + 2 * TICK_S)
        assert count_redeliveries(broker) == 1
        again = await receive(consumer, 4)
        assert payloads(again) == [b"1", b"3", b"4", b"5"]
        await consumer.acknowledge_cumulative(again[-1])
        await let_pass(clock, 3 * TIMEOUT_S)
        assert count_redeliveries(broker) == 1


async def test_a_batch_times_out_by_its_messages_that_were_received() -> None:
    """(CON-6): a part that was acknowledged does not come again, one that waits in the queue does not time out."""
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        broker.topic("t").publish(b"a", b"b", b"c", b"d", b"e")
        consumer = await client.subscribe("t", "s", ConsumerType.Shared, **TIMED)
        first = await receive(consumer, 2)
        await consumer.acknowledge(first)
        await let_pass(clock, 3 * TIMEOUT_S)
        assert count_redeliveries(broker) == 0, "the rest is prefetched"
        second = await receive(consumer, 2)
        await let_pass(clock, TIMEOUT_S / 2)
        await consumer.acknowledge(second[0])
        await let_pass(clock, TIMEOUT_S / 2 + 2 * TICK_S)
        assert count_redeliveries(broker) == 1
        again = await receive(consumer, 2)
        assert payloads(again) == [b"d", b"e"]
        await consumer.acknowledge(again, receipt=True)
        assert broker.topic("t").cursors.cursors["s"].mark_delete == broker.topic("t").log.last


async def test_the_backoff_is_added_to_the_timeout() -> None:
    """(CON-6): 10+1, 10+2, 10+4 … 10+60 s"""
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        broker.topic("t").publish(b"a")
        backoff = MultiplierRedeliveryBackoff(1_000, 60_000, 2)
        consumer = await client.subscribe(
            "t",
            "s",
            ConsumerType.Shared,
            **TIMED,
            ack_timeout_redelivery_backoff=backoff,
            ack_timeout_tick_time_ms=100,
        )
        for redeliveries, extra_s in enumerate([1, 2, 4, 8, 16, 32, 60, 60]):
            [message] = await receive(consumer, 1)
            assert message.redelivery_count() == redeliveries
            await let_pass(clock, TIMEOUT_S + extra_s - TICK_S)
            assert count_redeliveries(broker) == redeliveries
            await let_pass(clock, 2 * TICK_S)
            assert count_redeliveries(broker) == redeliveries + 1


async def test_a_negative_acknowledgement_ends_the_timeout() -> None:
    """(CON-6, CON-5)"""
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        broker.topic("t").publish(b"a")
        consumer = await client.subscribe(
            "t", "s", ConsumerType.Shared, **TIMED, negative_ack_redelivery_delay_ms=60_000
        )
        [message] = await receive(consumer, 1)
        await consumer.negative_acknowledge(message)
        await let_pass(clock, 59)
        assert count_redeliveries(broker) == 0
        await let_pass(clock, 2)
        assert count_redeliveries(broker) == 1


async def test_timeouts_are_of_one_partition_and_are_reset_by_a_new_connection() -> None:
    """(CON-6)"""
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        for topic in ("a", "b"):
            for number in range(2):
                broker.topic(topic).publish(b"%s%d" % (topic.encode(), number))
        consumer = await client.subscribe(["a", "b"], "s", **TIMED)
        messages = {one.data(): one for one in await receive(consumer, 4)}
        await consumer.acknowledge(messages[b"a0"])
        await consumer.acknowledge_cumulative(messages[b"b1"])
        await let_pass(clock, TIMEOUT_S + 2 * TICK_S)
        [again] = await receive(consumer, 1)
        assert (again.data(), again.redelivery_count()) == (b"a1", 1)

        await let_pass(clock, TIMEOUT_S - 2 * TICK_S)
        broker.break_streams()
        await receive(consumer, 1)
        await let_pass(clock, TIMEOUT_S - 2 * TICK_S)
        assert count_redeliveries(broker) == 1
        await let_pass(clock, 4 * TICK_S)
        assert count_redeliveries(broker) == 2


async def test_a_late_acknowledgement_has_no_effect_on_the_timeout_after_a_seek() -> None:
    """(CON-6, CHK-52): it is dropped, so the message that is delivered again may time out."""
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        broker.topic("t").publish(b"a")
        consumer = await client.subscribe("t", "s", **TIMED)
        [before] = await receive(consumer, 1)
        await consumer.seek(0)
        await receive(consumer, 1)
        await consumer.acknowledge(before)
        await let_pass(clock, TIMEOUT_S + 2 * TICK_S)
        assert count_redeliveries(broker) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"unacked_messages_timeout_ms": 999}, "at least 1000 ms"),
        ({"ack_timeout_tick_time_ms": 99}, "ack_timeout_tick_time_ms"),
        ({"unacked_messages_timeout_ms": 2_000, "ack_timeout_tick_time_ms": 3_000}, "shorter tick"),
        ({"ack_timeout_redelivery_backoff": MultiplierRedeliveryBackoff()}, "set that, too"),
        ({"unacked_messages_timeout_ms": 2_000, "ack_timeout_redelivery_backoff": 5}, "MultiplierRedeliveryBackoff"),
    ],
)
async def test_invalid_timeouts_are_refused(options: dict[str, Any], text: str) -> None:
    async with client_of() as (_, client):
        with pytest.raises(InvalidConfiguration, match=text):
            await client.subscribe("t", "s", **options)
