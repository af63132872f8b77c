"""Acknowledgements, from the application to the broker."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar import ConsumerType, InitialPosition
from magnetar.exceptions import CumulativeAcknowledgementNotAllowedError
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
