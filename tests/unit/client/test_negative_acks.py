"""Negative acknowledgements and their redelivery."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from magnetar import ConsumerType, InitialPosition, MultiplierRedeliveryBackoff
from magnetar.exceptions import InvalidConfiguration
from magnetar_testing.clock import ManualClock
from tests.running import until
from tests.unit.client.consume_scene import client_of, payloads, receive

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
SOON: Any = {**EARLIEST, "negative_ack_redelivery_delay_ms": 20}


async def test_a_nack_on_an_exclusive_subscription_redelivers_everything_unacknowledged_in_order() -> None:
    """CON-5, CHK-52: acknowledgements that were collected are sent before, and later ones still count."""
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
            lambda: consumer._core.partitions[0].epoch.number != messages[0]._entry.epoch.number, "a new epoch begins"
        )
        again = await receive(consumer, 8)
        assert payloads(again) == [b"1", b"2", b"4", b"5", b"6", b"7", b"8", b"9"]
        assert [m.redelivery_count() for m in again[:4]] == [1, 1, 1, 1]
        await consumer.acknowledge([messages[1], messages[2]], receipt=True)
        assert topic.cursors.cursors["s"].mark_delete == topic.log.order[3], "late ones still count"
        [request] = [one for one in broker.requests if one.redeliver]
        assert [range_.first_entry_id for range_ in request.acknowledge[0].entries] == [0, 3]


async def test_a_nack_on_a_shared_subscription_redelivers_the_entry_without_its_acknowledged_messages() -> None:
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
        await until(lambda: any(one.redeliver for one in broker.requests), "it is requested")
        rest = await receive(consumer, 5)
        assert sorted(payloads(rest)) == [b"a", b"c", b"d", b"x", b"y"], "d, which was prefetched, is delivered once"
        assert [m.redelivery_count() for m in rest if m.data() in b"acd"] == [1, 1, 1]
        await consumer.acknowledge(rest, receipt=True)
        assert topic.cursors.cursors["s"].mark_delete == topic.log.last
        assert sum(len(one.redeliver) for one in broker.requests) == 1
        assert len(consumer._core.queue) == 0


async def test_a_backoff_grows_with_each_redelivery() -> None:
    """CON-5"""
    backoff = MultiplierRedeliveryBackoff()
    assert [backoff.next(count) for count in range(8)] == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
    assert backoff.next(10_000) == 60_000
    wrong: Any
    for wrong in ((10, 5), (None, 1), ("a", "b"), (math.inf, math.inf), (math.nan, 1), (1, 2, math.inf), (1, 2, None)):
        with pytest.raises(InvalidConfiguration, match="0 <= min_delay_ms <= max_delay_ms"):
            MultiplierRedeliveryBackoff(*wrong)


class BrokenBackoff:
    """A backoff of an application."""

    min_delay_ms = 0

    def __init__(self, delay: Any) -> None:
        self.delay = delay

    def next(self, redelivery_count: int) -> Any:
        return self.delay(redelivery_count)


@pytest.mark.parametrize("delay", [lambda count: 1 / 0, lambda count: "soon", lambda count: -1, lambda count: math.nan])
@pytest.mark.parametrize("timeout", [False, True])
async def test_a_backoff_that_fails_loses_no_redelivery(
    delay: Any, timeout: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """CON-5, CON-6: that is logged, and the default backoff is used, of 1 s here."""
    clock = ManualClock()
    options: dict[str, Any] = {"negative_ack_redelivery_backoff": BrokenBackoff(delay)}
    if timeout:
        options = {"unacked_messages_timeout_ms": 1_000, "ack_timeout_redelivery_backoff": BrokenBackoff(delay)}
    async with client_of(_clock=clock) as (broker, client):
        broker.topic("t").publish(b"a")
        consumer = await client.subscribe("t", "s", ConsumerType.Shared, **EARLIEST, **options)
        [message] = await receive(consumer, 1)
        if not timeout:
            await consumer.negative_acknowledge(message)
        for _ in range(6):
            await let_client_work()
            clock.advance(1)
        [again] = await receive(consumer, 1)
        assert again.redelivery_count() == 1
    assert "failed, so the default one is used" in caplog.text


@pytest.mark.parametrize(
    ("options", "delays_s"),
    [
        ({}, [60, 60]),
        ({"negative_ack_redelivery_delay_ms": 5_000}, [5, 5, 5]),
        ({"negative_ack_redelivery_backoff": MultiplierRedeliveryBackoff()}, [1, 2, 4, 8, 16, 32, 60, 60]),
        ({"negative_ack_redelivery_backoff": MultiplierRedeliveryBackoff(10_000, 50_000, 3)}, [10, 30, 50, 50]),
    ],
)
@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Failover, ConsumerType.Shared])
async def test_a_nacked_message_is_redelivered_after_its_delay(
    kind: ConsumerType, options: dict[str, Any], delays_s: list[int]
) -> None:
    """(CON-5) A minute, or the delay that was set, or the one of the backoff: never earlier, and little later."""
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        broker.topic("t").publish(b"a")
        consumer = await client.subscribe("t", "s", kind, **EARLIEST, **options)
        for number, delay_s in enumerate(delays_s):
            [message] = await receive(consumer, 1)
            assert message.redelivery_count() == number
            await consumer.negative_acknowledge(message)
            await let_client_work()
            clock.advance(delay_s - 0.01)
            await let_client_work()
            assert sum(len(one.redeliver) for one in broker.requests) == number
            clock.advance(1.01)


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("nacked", ["before", "during", "after"])
async def test_nacks_of_an_earlier_opening_request_no_second_redelivery(
    kind: ConsumerType, by_id: bool, nacked: str
) -> None:
    """CON-5, CHK-52: reopening redelivers everything unacknowledged."""
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        topic = broker.topic("t")
        for number in range(4):
            topic.publish(str(number).encode())
        consumer = await client.subscribe("t", "s", kind, **EARLIEST, negative_ack_redelivery_delay_ms=5_000)
        messages = await receive(consumer, 4)
        nack = messages[1].message_id() if by_id else messages[1]
        if nacked == "before":
            await consumer.negative_acknowledge(nack)
        broker.answering.clear()
        broker.break_streams()
        await until(lambda: not consumer.is_connected(), "the consumer is disconnected")
        if nacked == "during":
            await consumer.negative_acknowledge(nack)
        reopening = asyncio.create_task(receive(consumer, 4))
        while not reopening.done():
            broker.answering.set()
            clock.advance(0.001)
            await asyncio.sleep(0)
        again = await reopening
        if nacked == "after":
            await consumer.negative_acknowledge(nack)
        assert payloads(again) == [b"0", b"1", b"2", b"3"]
        await wait_until_due(clock)
        assert not any(one.redeliver for one in broker.requests)
        # A later nack counts.
        await consumer.negative_acknowledge(again[3])
        await wait_until_due(clock)
        await until(lambda: any(one.redeliver for one in broker.requests), "the later nack is requested")
        redelivered = await receive(consumer, 1 if kind is ConsumerType.Shared else 4)
        assert payloads(redelivered) == ([b"3"] if kind is ConsumerType.Shared else [b"0", b"1", b"2", b"3"])
        requested = [redeliver for one in broker.requests for redeliver in one.redeliver]
        assert len(requested) == 1
        if kind is ConsumerType.Shared:
            assert [one.first_entry_id for one in requested[0].entries] == [3]


async def let_client_work() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def wait_until_due(clock: ManualClock) -> None:
    """Let the client schedule its nacks, and then send the requests that are due."""
    for _ in range(2):
        await let_client_work()
        clock.advance(10.0)
