"""A topic with deduplication whose broker is killed: another one takes it over, while producers publish."""

from __future__ import annotations

import asyncio
import itertools

from magnetar import MessageId
from magnetar_wire.topic_name import TopicName
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
