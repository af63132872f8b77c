"""What the SDK reports of messages that a topic with deduplication has stored before."""

from __future__ import annotations

import asyncio

from magnetar import MessageId, aio
from magnetar_broker.errors import TopicUnloaded
from magnetar_wire.batch import decode_messages
from magnetar_wire.entry import decode_entry
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.broker_scene import BrokerScene, running_broker


async def read_ids(scene: BrokerScene) -> dict[bytes, tuple[int, int, int]]:
    """Return where each payload is stored: ledger, entry and index in the batch, -1 for a message alone."""
    topic = scene.broker_session.topics.get_loaded(TopicName.parse("t"))
    assert topic is not None
    found: dict[bytes, tuple[int, int, int]] = {}
    for one in await topic.log.read(topic.log.first_after(topic.log.before_first), 1_000, 2**24):
        entry = decode_entry(one.stored)
        for index, payload in enumerate(decode_messages(entry).payloads):
            assert payload is not None
            assert bytes(payload) not in found
            found[bytes(payload)] = (*one.position, index if entry.is_batch else -1)
    return found


def position(message_id: MessageId) -> tuple[int, int, int]:
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


async def send_batch(producer: aio.Producer, *numbers: int) -> list[tuple[int, int, int]]:
    sends = [producer.send(b"%d" % number, sequence_id=number) for number in numbers]
    return [position(one) for one in await asyncio.gather(*sends)]


async def test_ids_of_duplicates_and_of_partly_duplicate_batches() -> None:
    """DUP-1, DUP-2, PRD-7: a duplicate's id is (-1,-1), and those of the other messages of its batch are theirs."""
    async with running_broker(broker_deduplication_enabled=True) as scene, scene.client() as client:
        producer = await client.create_producer("t", producer_name="p")
        await send_batch(producer, 0, 1, 2, 5)
        assert producer.last_sequence_id() == 5
        await producer.close()
        producer = await client.create_producer("t", producer_name="p")
        assert producer.last_sequence_id() == 5
        ids = await send_batch(producer, 1, 2)
        assert [one[:2] for one in ids] == [(-1, -1), (-1, -1)]
        assert producer.last_sequence_id() == 5
        ids = await send_batch(producer, 2, 5, 6, 9)
        stored = await read_ids(scene)
        assert ids == [(-1, -1, -1), (-1, -1, -1), stored[b"6"], stored[b"9"]]
        assert sorted(stored) == [b"0", b"1", b"2", b"5", b"6", b"9"]
        assert producer.last_sequence_id() == 9
        await producer.close()


async def test_an_application_that_restarts_goes_on_where_it_stopped() -> None:
    """DUP-1, PRD-7: `initial_sequence_id` begins before what is stored, `last_sequence_id` behind it."""
    async with running_broker(broker_deduplication_enabled=True) as scene:
        for first_run in (True, False):
            async with scene.client() as client:
                producer = await client.create_producer("t", producer_name="p", initial_sequence_id=9)
                results = [position(await producer.send(b"%d" % number)) for number in range(3)]
                assert [one[:2] == (-1, -1) for one in results] == [not first_run] * 3
                await producer.close()
        async with scene.client() as client:
            producer = await client.create_producer("t", producer_name="p")
            assert producer.last_sequence_id() == 12
            assert position(await producer.send(b"3"))[0] >= 0
            await producer.close()
        assert list(await read_ids(scene)) == [b"0", b"1", b"2", b"3"]


async def test_resent_messages_are_stored_once_though_their_results_were_lost() -> None:
    """DUP-1: the topic is moved, again and again, while a producer publishes; stored once and in order."""
    async with (
        running_broker(broker_deduplication_enabled=True, broker_deduplication_entries_interval=7) as scene,
        scene.client() as client,
    ):
        producer = await client.create_producer("t", batching_enabled=False)
        sends: list[asyncio.Task[MessageId]] = []
        for round_ in range(6):
            sends += [asyncio.create_task(producer.send(b"%d" % (10 * round_ + one))) for one in range(10)]
            for _ in range(3 * round_):
                await asyncio.sleep(0)
            if (topic := scene.broker_session.topics.get_loaded(TopicName.parse("t"))) is not None:
                topic.abort(TopicUnloaded("crashed"))
        await asyncio.gather(*sends)
        assert list(await read_ids(scene)) == [b"%d" % number for number in range(60)]
        await producer.close()
