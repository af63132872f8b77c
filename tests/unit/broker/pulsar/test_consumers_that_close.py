"""A consumer that closes while the broker still reads what it has acknowledged, and a topic that ends under one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from magnetar_broker.errors import BrokerError, LostEntry, TopicUnloaded
from magnetar_broker.position import Position
from magnetar_broker.topics.consumer import Consumer
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandSubscribe,
    ServerError,
)
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker
from tests.unit.broker.pulsar.test_consumers import SHARED, flow, id_of, published

FIRST_AND_LAST_OPEN = 0b1001
find_batch_sizes = Consumer.find_batch_sizes


def ack(*ids: MessageIdData, request_id: int | None = None) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.ACK,
        ack=CommandAck(consumer_id=1, ack_type=CommandAck.INDIVIDUAL, message_id=ids, request_id=request_id),
    )


async def test_a_consumer_that_closes_is_not_opened_again_before_it_has() -> None:
    """WIRE-1, CON-1: a client that was answered that its consumer is open has one."""

    async with running_pulsar_broker(managed_ledger_cache_size_mb=0) as scene:
        client = await scene.pulsar_client()
        await published(client, 4, 4)
        await client.subscribe(sub_type=SHARED)
        [first, _] = await client.wait_delivered(2)
        again = CommandSubscribe(topic="t", subscription="s", consumer_id=1, request_id=201, sub_type=SHARED)
        client.send(
            ack(id_of(first, FIRST_AND_LAST_OPEN)),
            BaseCommand(
                type=BaseCommand.CLOSE_CONSUMER, close_consumer=CommandCloseConsumer(consumer_id=1, request_id=200)
            ),
            BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=again),
        )
        assert (await client.answer(201)).error.error == ServerError.SERVICE_NOT_READY
        assert (await client.answer(200)).type == BaseCommand.SUCCESS
        await client.subscribe(sub_type=SHARED)
        assert len(await client.wait_delivered(4)) == 4


async def test_closing_consumer_is_dispatched_no_more_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """SUB-4: what it does not take any more goes to others at once."""
    found = asyncio.Event()

    async def slowly(consumer: Consumer, positions: Sequence[Position]) -> list[int]:
        await found.wait()
        return await find_batch_sizes(consumer, positions)

    monkeypatch.setattr(Consumer, "find_batch_sizes", slowly)
    async with running_pulsar_broker(managed_ledger_cache_size_mb=0) as scene:
        client, other = await scene.pulsar_client(), await scene.pulsar_client()
        await published(client, 4)
        await client.subscribe(sub_type=SHARED)
        [first] = await client.wait_delivered(1)
        closing = BaseCommand(
            type=BaseCommand.CLOSE_CONSUMER, close_consumer=CommandCloseConsumer(consumer_id=1, request_id=200)
        )
        client.send(ack(id_of(first, FIRST_AND_LAST_OPEN)), closing)
        await other.subscribe(sub_type=SHARED)
        name = (await client.open_producer()).producer_name
        client.publish(1, *range(10), name=name)
        assert len(await other.wait_delivered(10)) == 10
        found.set()
        await client.answer(200)


@pytest.mark.parametrize("call", ["flow", "acknowledge"])
async def test_the_end_of_one_topic_is_not_the_end_of_the_connection(call: str) -> None:
    """WIRE-1: its log was closed, and its consumers are notified in a moment; other topics are not affected."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await published(client, 1, 4, 1)
        await client.subscribe(permits=2 if call == "flow" else 100, sub_type=SHARED)
        batch = (await client.wait_delivered(2))[1]
        [topic] = scene.broker_session.topics.loaded()
        topic.managed_ledger._appender.fail(TopicUnloaded("fenced"))
        if call == "flow":
            client.send(flow(10))
        else:
            client.send(ack(id_of(batch, FIRST_AND_LAST_OPEN), request_id=300))
            assert (await client.answer(300)).ack_response.error == ServerError.SERVICE_NOT_READY
        await client.wait_for_answers(BaseCommand.CLOSE_CONSUMER)
        assert not client.is_disconnected
        await client.lookup("other")


async def come_again(client: PulsarClient) -> int:
    """How many entries are not acknowledged."""
    await client.close_consumer()
    await client.subscribe(2, sub_type=SHARED)
    await client.subscribe(3, subscription="other")
    await client.wait_delivered(3, 3)  # time enough for what would be too much
    return len([one for one in client.delivered if one.consumer_id == 2])


@pytest.mark.parametrize("lost", [True, False])
async def test_a_batch_that_cannot_be_read_voids_nothing_else(monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    """CON-3, CON-4: libraries acknowledge once, and gather; each of the others counts."""

    async def fails(consumer: Consumer, positions: Sequence[Position]) -> list[int]:
        if lost and lost_positions.isdisjoint(positions):
            return await find_batch_sizes(consumer, positions)
        raise LostEntry(positions[0], "lost") if lost else BrokerError(ErrorCode.PERSISTENCE_ERROR, "not now")

    lost_positions: set[Position] = set()
    monkeypatch.setattr(Consumer, "find_batch_sizes", fails)
    async with running_pulsar_broker(managed_ledger_cache_size_mb=0) as scene:
        client = await scene.pulsar_client()
        await published(client, 4, 1, 4)
        await client.subscribe(sub_type=SHARED)
        delivered = await client.wait_delivered(3)
        lost_positions.add(Position(delivered[0].ledger_id, delivered[0].entry_id))
        # Of the last all but the first message, and then that.
        ids = [id_of(delivered[0], 0b1001), id_of(delivered[1]), id_of(delivered[2], 0b0001)]
        answer = await client.acknowledge(1, ids)
        assert answer.error == ServerError.PERSISTENCE_ERROR
        if lost:
            await client.acknowledge(1, [id_of(delivered[2], 0b1110)])
        else:
            await client.acknowledge(1, [id_of(delivered[2])])
        assert await come_again(client) == 1


async def test_many_batch_index_acks_do_not_delay_other_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """WIRE-1: entries that one client has the broker read are read in turns with those of others."""
    reads: list[int] = []
    go_on = asyncio.Event()

    async def noting(consumer: Consumer, positions: Sequence[Position]) -> list[int]:
        reads.append(len(positions))
        await go_on.wait()
        return await find_batch_sizes(consumer, positions)

    monkeypatch.setattr(Consumer, "find_batch_sizes", noting)
    async with running_pulsar_broker(managed_ledger_cache_size_mb=0) as scene:
        greedy, modest = await scene.pulsar_client(), await scene.pulsar_client()
        await published(greedy, *[4] * 40)
        ids = []
        for client in (greedy, modest):
            await client.subscribe(subscription=str(id(client)))
            ids = [id_of(one, FIRST_AND_LAST_OPEN) for one in await client.wait_delivered(40)]
        for _ in range(100):
            greedy.send(ack(*ids))
        await until(lambda: bool(reads), "entries are read for the greedy one")
        modest.send(ack(ids[0], request_id=300))
        await until(lambda: len(reads) == 2, "and for the modest one")
        assert sorted(reads) == [1, 4]
        go_on.set()
        assert not (await modest.answer(300)).ack_response.HasField("error")
        await until(lambda: not greedy.tasks, "the rest is read")
