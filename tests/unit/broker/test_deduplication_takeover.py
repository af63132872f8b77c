"""A topic with deduplication whose broker is killed: another one takes it over, while producers publish."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from magnetar import MessageId
from magnetar_wire.topic_name import TopicName
from tests.running import until
from tests.unit.broker.cluster_scene import kill, running_brokers

_NAME = TopicName.parse("t")


async def test_messages_are_stored_once_when_a_broker_takes_over() -> None:
    """DUP-1, DUP-2, PRD-7: it reads the snapshot and the entries after it, before producers may publish."""
    async with (
        running_brokers(2, broker_deduplication_enabled=True, broker_deduplication_entries_interval=20) as scene,
        scene.client() as client,
    ):
        producer = await client.create_producer("t", producer_name="p", batching_max_messages=3)
        numbers = itertools.count()
        sends: list[asyncio.Task[MessageId]] = []

        def send(count: int) -> None:
            sends.extend(asyncio.create_task(producer.send(b"%d" % next(numbers))) for _ in range(count))

        send(50)
        await sends[30]
        owner = next(one for one in scene.brokers if one.broker_session.topics.get_loaded(_NAME) is not None)
        send(50)
        await asyncio.sleep(0)
        await kill(owner)
        scene.brokers.remove(owner)
        send(20)
        ids = await asyncio.gather(*sends)
        assert producer.last_sequence_id() == 119
        reader = await client.create_reader("t", MessageId.earliest)
        found = [(await reader.read_next()).data() for _ in range(120)]
        assert found == [b"%d" % number for number in range(120)]
        assert not await reader.has_message_available()
        assert len(ids) == 120


async def test_messages_in_chunks_are_stored_once_when_a_broker_takes_over() -> None:
    """DUP-1, DUP-2, PRD-8: the broker is killed while chunks are in flight; groups that it cuts off are completed."""
    settings: dict[str, Any] = {"broker_deduplication_enabled": True, "max_message_size": 20_000}
    async with running_brokers(2, **settings) as scene, scene.client() as client:
        producer = await client.create_producer("t", chunking_enabled=True, batching_enabled=False)
        contents = [b"%d " % number + bytes(70_000) for number in range(12)]
        await producer.send(contents[0])
        scene.bookies[1].hold()  # the other one stores what is in flight
        sends = [asyncio.create_task(producer.send(one)) for one in contents[1:]]
        owner = next(one for one in scene.brokers if one.broker_session.topics.get_loaded(_NAME) is not None)
        topic = owner.broker_session.topics.get_loaded(_NAME)
        assert topic is not None
        await until(lambda: topic.log.stats().pending_appends > 4, "chunks are in flight")
        await kill(owner)
        scene.brokers.remove(owner)
        assert not any(one.done() for one in sends)
        scene.bookies[1].resume()
        await asyncio.gather(*sends)
        reader = await client.create_reader("t", MessageId.earliest)
        assert [(await reader.read_next()).data() for _ in contents] == contents
        assert not await reader.has_message_available()
