"""The requests of a connection: their number and size are limited, and each is answered."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.topics.subscription import Subscription
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandSeek,
    CommandSubscribe,
    ServerError,
)
from tests.running import until
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker
from tests.unit.broker.pulsar.test_consumers import published


async def test_the_bytes_of_pending_requests_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty of a megabyte each would take hundreds of megabytes, and a thousand many times that."""

    async with running_pulsar_broker(
        max_waiting_requests_bytes_per_connection=1000, managed_ledger_cache_size_mb=0
    ) as scene:
        may_read = asyncio.Event()

        async def later(self: Subscription, positions: list[object]) -> list[int]:
            await may_read.wait()
            return [4] * len(positions)

        monkeypatch.setattr(Subscription, "find_batch_sizes", later)
        client = await scene.pulsar_client()
        await published(client, 4)
        await client.subscribe(sub_type=1)
        [one] = await client.wait_delivered(1)
        command = CommandAck(
            consumer_id=1,
            ack_type=CommandAck.INDIVIDUAL,
            message_id=[MessageIdData(ledgerId=one.ledger_id, entryId=one.entry_id, ack_set=[1] * 100)],
        )
        for _ in range(20):
            client.send(BaseCommand(type=BaseCommand.ACK, ack=command))
        assert client.transport.is_reading_paused
        assert len(client.tasks) < 10
        may_read.set()
        await until(lambda: not client.transport.is_reading_paused, "reading continues")
        await client.close_consumer()


async def test_a_consumer_that_is_closed_before_it_is_open_answers_both_requests() -> None:
    """WIRE-1: every request is answered."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        subscribe = CommandSubscribe(topic="t", subscription="s", sub_type=0, consumer_id=1, request_id=100)
        close = CommandCloseConsumer(consumer_id=1, request_id=101)
        client.send(
            BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe),
            BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close),
        )
        assert (await client.answer(101)).type == BaseCommand.SUCCESS
        assert (await client.answer(100)).error.error == ServerError.SERVICE_NOT_READY


async def test_a_seek_of_a_closed_consumer_is_answered_with_consumer_not_found() -> None:
    """WIRE-1: libraries take a missing topic as final."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.subscribe()
        to = MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)
        client.send(
            *[
                BaseCommand(type=BaseCommand.SEEK, seek=CommandSeek(consumer_id=1, request_id=number, message_id=to))
                for number in (100, 101)
            ]
        )
        assert (await client.answer(100)).type == BaseCommand.SUCCESS
        assert (await client.answer(101)).error.error == ServerError.CONSUMER_NOT_FOUND
