"""A full topic delays only its own producers, not others of their connection, within a limit."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.errors import BrokerError
from magnetar_broker.topics.producer import Producer
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import BaseCommand
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from tests.running import until, within
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker


async def test_full_topic_does_not_block_producers_of_other_topics() -> None:
    """CHK-66: entries for the full topic wait, and are stored in order when it has capacity; a close waits for that."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        for producer_id, name in ((1, "full"), (2, "free"), (3, "full")):
            await client.open_producer(producer_id, name, producer_name=f"p{producer_id}")
        [full] = [topic for topic in scene.broker_session.topics.loaded() if topic.name.local_name == "full"]
        much = 1 << 40
        full.budget.add(much)
        for first in range(0, 50, 5):
            client.publish(1, *range(first, first + 5), name="p1")
            client.publish(3, first, name="p3")
            client.publish(2, first, name="p2")
            assert len(await client.receipts(2, first // 5 + 1)) == first // 5 + 1
        assert full.log.pending_bytes == 0
        assert not client.transport.is_reading_paused
        closing = asyncio.create_task(client.close_producer(1))
        client.publish(2, 50, name="p2")
        await client.receipts(2, 11)
        assert not closing.done()
        full.budget.release(much)
        assert (await within(closing, "it is closed")).type == BaseCommand.SUCCESS
        assert [one.sequence_id for one in await client.receipts(1, 50)] == list(range(50))
        assert [one.sequence_id for one in await client.receipts(3, 10)] == list(range(0, 50, 5))
        assert client.session.waiting_publish_bytes == client.session.pending_publish_bytes == 0
        assert scene.broker_session.budget.used_bytes == full.budget.used_bytes == 0


async def test_a_close_answers_for_entries_that_a_closing_topic_does_not_take() -> None:
    """CHK-69: the topic closes while entries wait for capacity and their producer is being closed; then CLOSE_PRODUCER
    comes before SUCCESS, and entries without a receipt are not stored."""

    settled = Producer.settled
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.open_producer(1, "full", producer_name="first")
        await client.open_producer(2, "full", producer_name="p2")
        [full] = scene.broker_session.topics.loaded()
        much = 1 << 40
        full.budget.add(much)
        client.publish(2, *range(5), name="p2")
        closing_producer = asyncio.create_task(client.close_producer(2))
        # The topic waits for the entries of its first producer, and takes none of the second.
        first, second = full.producers.connected()
        undecided = asyncio.Event()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Producer, "settled", lambda one: undecided.wait() if one is first else settled(one))
            closing = asyncio.create_task(full.close(BrokerError(ErrorCode.SERVICE_NOT_READY, "it moves")))
            await until(lambda: second.is_stopped, "the topic closes")
            full.budget.release(much)
            assert (await within(closing_producer, "the producer is closed")).type == BaseCommand.SUCCESS
            [answer] = client.answers_of(BaseCommand.CLOSE_PRODUCER)
            assert answer.close_producer.producer_id == 2
            assert client.answers_of(BaseCommand.SEND_RECEIPT) == []
            undecided.set()
            await within(closing, "the topic is closed")
        assert [one.close_producer.producer_id for one in client.answers_of(BaseCommand.CLOSE_PRODUCER)] == [2, 1]
        assert client.session.waiting_publish_bytes == client.session.pending_publish_bytes == 0


@pytest.mark.parametrize("how", ["cut", "the topic ends"])
async def test_entries_waiting_for_capacity_are_released_when_producer_ends(how: str) -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.open_producer(1, "full", producer_name="p1")
        [full] = scene.broker_session.topics.loaded()
        full.budget.add(1 << 40)
        client.publish(1, *range(20), name="p1")
        await until(lambda: scene.broker_session.budget.used_bytes > 20 * ENTRY_OVERHEAD_BYTES, "they are taken")
        if how == "cut":
            client.cut()
        else:
            full.producers.connected()[0].end(BrokerError(ErrorCode.SERVICE_NOT_READY, "it is lost"))
            await client.wait_for_answers(BaseCommand.CLOSE_PRODUCER)
        await until(lambda: scene.broker_session.budget.used_bytes == 0, "they are given back")
        assert client.session.waiting_publish_bytes == client.session.pending_publish_bytes == 0
        assert full.log.pending_bytes == 0
        full.budget.release(1 << 40)
