"""A client's consumer whose subscription is moved, and one of a partition that nobody has used."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.cursors.durable_cursor import DurableCursor
from magnetar_broker.position import Position
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import BaseCommand, ServerError
from tests.running import until
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

_EARLIEST = MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)


async def test_ack_during_a_seek_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SUB-9, CHK-52, WIRE-1: libraries collect acknowledgements for a moment, and send them when they have already
    requested the seek. A late cumulative one would undo it."""
    moving, move = asyncio.Event(), asyncio.Event()
    move_to = DurableCursor.move_to

    async def slowly(cursor: DurableCursor, position: Position) -> None:
        moving.set()
        await move.wait()
        await move_to(cursor, position)

    monkeypatch.setattr(DurableCursor, "move_to", slowly)
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer()
        client.publish(1, *range(10), name=opened.producer_name)
        await client.receipts(1, 10)
        await client.subscribe()
        last = (await client.wait_delivered(10))[-1]
        seeking = asyncio.create_task(client.seek(1, message_id=_EARLIEST))
        await moving.wait()
        ids = [MessageIdData(ledgerId=last.ledger_id, entryId=last.entry_id)]
        answer = await client.acknowledge(1, ids, cumulative=True)
        assert answer.error == ServerError.NOT_ALLOWED_ERROR
        move.set()
        assert (await seeking).type == BaseCommand.SUCCESS
        await client.wait_for_answers(BaseCommand.CLOSE_CONSUMER)
        await client.subscribe(2)
        assert len(await client.wait_delivered(10, 2)) == 10


async def test_cumulative_ack_of_an_unknown_ledger_acknowledges_nothing() -> None:
    """CHK-62: the position before the first entry of a ledger stands for the entry before it, if the topic has it."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer()
        client.publish(1, *range(3), name=opened.producer_name)
        await client.receipts(1, 3)
        await client.subscribe()
        await client.wait_delivered(3)
        [topic] = scene.broker_session.topics.loaded()
        answer = await client.acknowledge(1, [MessageIdData(ledgerId=2**62, entryId=2**64 - 1)], cumulative=True)
        assert "can't be acknowledged" in answer.message
        [subscription] = topic.subscriptions.stats()
        assert subscription.backlog_entries == 3


async def test_non_durable_subscription_survives_seek_until_consumers_return() -> None:
    """SUB-7, SUB-9: a transient subscription is deleted with its last consumer, and these are about to reconnect."""

    async with running_pulsar_broker() as scene:
        clients = [await scene.pulsar_client() for _ in range(2)]
        [first, second] = clients
        opened = await first.open_producer()
        first.publish(1, *range(5), name=opened.producer_name)
        await first.receipts(1, 5)
        for client in clients:
            await client.subscribe(sub_type=1, durable=False, permits=0)
        await first.seek(1, message_id=_EARLIEST)
        await second.wait_for_answers(BaseCommand.CLOSE_CONSUMER)
        await first.subscribe(sub_type=1, durable=False, initial_position=0, permits=0)
        await first.close_consumer()
        await second.subscribe(sub_type=1, durable=False, initial_position=0)
        assert len(await second.wait_delivered(5)) == 5
        await second.close_consumer()
        [topic] = scene.broker_session.topics.loaded()
        assert not list(topic.subscriptions.stats())


async def test_seek_closes_each_failover_consumer_without_activating_it() -> None:
    """SUB-3, SUB-9: all consumers leave a subscription that is moved, one after the other; none takes over."""

    async with running_pulsar_broker() as scene:
        clients = [await scene.pulsar_client() for _ in range(3)]
        for number, client in enumerate(clients):
            await client.subscribe(sub_type=2, consumer_name=f"consumer-{number}")
        [topic] = scene.broker_session.topics.loaded()
        [subscription] = topic.subscriptions._loaded.values()
        before = subscription.cursor.take_overs
        notified = [len(client.answers_of(BaseCommand.ACTIVE_CONSUMER_CHANGE)) for client in clients]
        await clients[0].seek(1, message_id=_EARLIEST)
        await until(lambda: not subscription.consumers, "all have left")
        for client, changes in zip(clients, notified, strict=True):
            await client.lookup("t")  # after all notifications
            assert len(client.answers_of(BaseCommand.CLOSE_CONSUMER)) == 1
            assert len(client.answers_of(BaseCommand.ACTIVE_CONSUMER_CHANGE)) == changes
        assert subscription.cursor.take_overs == before


async def test_a_partition_is_there_when_its_topic_is() -> None:
    """TOP-3, SUB-8: libraries that follow a pattern subscribe to the topics that they were notified of, and don't have
    them created."""

    async with running_pulsar_broker() as scene:
        await scene.admin.topics.create_partitioned("parted", 2)
        client = await scene.pulsar_client()
        for number, there in enumerate((True, True, False)):
            answer = await client.try_subscribe(number, f"parted-partition-{number}", force_topic_creation=False)
            assert (answer.type == BaseCommand.SUCCESS) == there
            assert there or answer.error.error == ServerError.TOPIC_NOT_FOUND
        answer = await client.try_subscribe(9, "whole", force_topic_creation=False)
        assert answer.error.error == ServerError.TOPIC_NOT_FOUND
