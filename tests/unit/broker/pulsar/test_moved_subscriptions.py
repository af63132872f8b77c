"""A client's consumer whose subscription is moved, and one of a partition that nobody has used."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.core.position import Position
from magnetar_broker.managed_ledger.durable_cursor import DurableCursor
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import BaseCommand, ServerError
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, in_pulsar

_EARLIEST = MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)


def test_what_is_acknowledged_while_the_cursor_moves_does_not_undo_the_seek(monkeypatch: pytest.MonkeyPatch) -> None:
    """SUB-9, WIRE-1: libraries gather acknowledgements for a moment, and send them when they have asked for the seek
    already."""
    moving, move = asyncio.Event(), asyncio.Event()
    move_to = DurableCursor.move_to

    async def slowly(cursor: DurableCursor, position: Position) -> None:
        moving.set()
        await move.wait()
        await move_to(cursor, position)

    async def test(scene: PulsarScene) -> None:
        client = await scene.pulsar_client()
        opened = await client.open_producer()
        client.publish(1, *range(10), name=opened.producer_name)
        await client.receipts(1, 10)
        await client.subscribe()
        last = (await client.wait_delivered(10))[-1]
        seeking = asyncio.create_task(client.seek(1, message_id=_EARLIEST))
        await moving.wait()
        ids = [MessageIdData(ledgerId=last.ledger_id, entryId=last.entry_id)]
        told = await client.acknowledge(1, ids, cumulative=True)
        assert told.error == ServerError.NOT_ALLOWED_ERROR
        move.set()
        assert (await seeking).type == BaseCommand.SUCCESS
        await client.wait_told(BaseCommand.CLOSE_CONSUMER)
        await client.subscribe(2)
        assert len(await client.wait_delivered(10, 2)) == 10

    monkeypatch.setattr(DurableCursor, "move_to", slowly)
    in_pulsar(test)


def test_a_partition_is_there_when_its_topic_is() -> None:
    """TOP-3, SUB-8: libraries that follow a pattern subscribe to what they were told of, and ask for no topic to be
    made."""

    async def test(scene: PulsarScene) -> None:
        await scene.admin.topics.create_partitioned("parted", 2)
        client = await scene.pulsar_client()
        for number, there in enumerate((True, True, False)):
            answer = await client.try_subscribe(number, f"parted-partition-{number}", force_topic_creation=False)
            assert (answer.type == BaseCommand.SUCCESS) == there
            assert there or answer.error.error == ServerError.TOPIC_NOT_FOUND
        answer = await client.try_subscribe(9, "whole", force_topic_creation=False)
        assert answer.error.error == ServerError.TOPIC_NOT_FOUND

    in_pulsar(test)
