"""Acknowledgements, from the application to the broker."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar import ConsumerType, InitialPosition
from magnetar._acknowledging.ack_grouping import AckGroupingTracker
from magnetar._acknowledging.ack_targets import MessageIdTarget
from magnetar._acknowledging.pending_acks import PendingAcks
from magnetar._consuming.consumer_options import ConsumerOptions
from magnetar._message import DeliveryEpoch
from magnetar.exceptions import CumulativeAcknowledgementNotAllowedError
from magnetar_testing.clock import ManualClock
from tests.running import until
from tests.unit.client.consume_scene import client_of, receive

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}


async def test_acknowledgements_are_collected_and_merged() -> None:
    """CON-3, CON-4"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(10):
            topic.publish(str(number).encode())
        topic.publish(b"a", b"b", b"c")
        topic.publish(b"d", b"e", b"f")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await receive(consumer, 16)
        for message in messages[:6] + messages[7:14]:
            await consumer.acknowledge(message)
        cursor = topic.cursors.cursors["s"]
        await until(
            lambda: len(cursor.acknowledged_entries) == 10 and bool(cursor.partial_batches),
            "acknowledgements have come",
        )
        [request] = [one for one in broker.requests if one.acknowledge]
        [one] = request.acknowledge
        assert [(r.first_entry_id, r.last_entry_id) for r in one.entries] == [(0, 5), (7, 10)]
        assert [(b.entry_id, b.messages, b.batch_size) for b in one.messages] == [(11, b"\x01", 3)]
        await consumer.acknowledge([messages[6], messages[14], messages[15].message_id()], receipt=True)
        assert cursor.mark_delete == topic.log.last


async def test_closing_the_consumer_sends_its_acknowledgements() -> None:
    """CON-3"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        topic.publish(b"a", b"b")
        consumer = await client.subscribe("t", "s", **EARLIEST, ack_grouping_time_ms=1e9)
        first, second = await receive(consumer, 2)
        await consumer.acknowledge(first)
        await consumer.close()
        assert topic.cursors.cursors["s"].partial_batches == {topic.log.last: 1}
        consumer = await client.subscribe("t", "s")
        [again] = await receive(consumer, 1)
        assert again.data() == second.data() == b"b"


async def test_acknowledgements_are_sent_after_the_grouping_time_or_number() -> None:
    """CON-3: every 100 ms or 1,000 acknowledgements by default; with 0 each is sent at once."""
    options = ConsumerOptions(subscription_name="s")
    clock, sent = ManualClock(), list[float]()
    waiting: list[Callable[[], object]] = []

    def tracker(grouping_time_ms: float) -> AckGroupingTracker:
        return AckGroupingTracker(
            waiting.append,
            clock,
            lambda: sent.append(clock.monotonic()),
            grouping_time_ms=grouping_time_ms,
            max_size=options.ack_grouping_max_size,
        )

    def acknowledge(acks: AckGroupingTracker, count: int) -> None:
        origin: Any = SimpleNamespace(acks=PendingAcks())
        for number in range(count):
            acks.add(MessageIdTarget(DeliveryEpoch(origin, 1, 1), 1, number, -1, 0, False))
        while waiting:
            waiting.pop(0)()

    acks, start = tracker(options.ack_grouping_time_ms), clock.monotonic()
    acknowledge(acks, 999)
    clock.advance(0.099)
    assert not sent
    clock.advance(0.001)
    assert sent == [pytest.approx(start + 0.1)]
    acknowledge(acks, 1_000)
    assert len(sent) == 2
    at_once = tracker(0)
    acknowledge(at_once, 1)
    assert len(sent) == 3


async def test_messages_of_one_batch_count_one_by_one_towards_the_grouping_number() -> None:
    """CON-3"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        topic.publish(*[b"x"] * 1_000)
        consumer = await client.subscribe("t", "s", **EARLIEST, ack_grouping_time_ms=1e9)
        for message in await receive(consumer, 1_000):
            await consumer.acknowledge(message)
        await until(lambda: topic.cursors.cursors["s"].mark_delete == topic.log.last, "they are acknowledged")


async def test_the_highest_cumulative_acknowledgement_is_sent() -> None:
    """CON-3, CON-4"""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        for number in range(5):
            topic.publish(str(number).encode())
        topic.publish(b"a", b"b", b"c")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await receive(consumer, 8)
        await consumer.acknowledge_cumulative(messages[6])
        await consumer.acknowledge_cumulative(messages[2])
        await consumer.acknowledge(messages[1])
        await consumer.acknowledge_cumulative(messages[3], receipt=True)
        cursor = topic.cursors.cursors["s"]
        assert cursor.mark_delete == topic.log.order[4]
        assert cursor.partial_batches == {topic.log.last: 0b11}
        sent = [one for request in broker.requests for one in request.acknowledge]
        assert len(sent) == 1


async def test_a_cumulative_acknowledgement_of_a_shared_subscription_is_refused() -> None:
    """CON-3, SUB-4"""
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"a")
        consumer = await client.subscribe("t", "s", ConsumerType.Shared, **EARLIEST)
        [message] = await receive(consumer, 1)
        with pytest.raises(CumulativeAcknowledgementNotAllowedError):
            await consumer.acknowledge_cumulative(message)
