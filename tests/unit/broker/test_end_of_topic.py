"""The end of a terminated topic, as readers see it."""

from __future__ import annotations

from magnetar import MessageId
from tests.running import until
from tests.unit.broker.broker_scene import running_broker


async def test_the_broker_knows_soon_what_a_reader_has_read_last() -> None:
    """Its broker knows of the last message soon after it was read."""
    async with running_broker() as scene, scene.client() as client:
        producer = await client.create_producer("t")
        for number in range(3):
            await producer.send(b"%d" % number)
        reader = await client.create_reader("t", MessageId.earliest)
        await scene.admin.topics.terminate("t")
        for _ in range(2):
            await reader.read_next(5000)
        assert not reader.has_reached_end_of_topic()
        await reader.read_next(5000)
        [topic] = scene.broker_session.topics.loaded()
        await until(lambda: not topic.subscriptions.stats()[0].backlog_entries, "the broker knows what was read")
        await until(reader.has_reached_end_of_topic, "the reader knows the end")
