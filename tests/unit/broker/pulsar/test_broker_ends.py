"""What becomes of connections of Pulsar's protocol when the broker ends, and when it loses its metadata session."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_metadata.store import MetadataStore
from magnetar_protos.broker_pb2 import SubscriptionType
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    CommandPing,
    CommandProducer,
    ServerError,
)
from magnetar_wire.entry import decode_entry
from tests.running import until, within
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker


async def _must_wait(client: PulsarClient) -> None:
    """Each command is answered with an error that has the client retry."""
    found = (await client.lookup("t")).lookup_topic_response
    assert (found.response, found.error) == (CommandLookupTopicResponse.FAILED, ServerError.SERVICE_NOT_READY)
    command = CommandPartitionedTopicMetadata(topic="t", request_id=client.request_id())
    parts = (await client.ask(BaseCommand.PARTITIONED_METADATA, partition_metadata=command)).partition_metadata_response
    assert parts.response == CommandPartitionedTopicMetadataResponse.FAILED
    assert parts.error == ServerError.SERVICE_NOT_READY
    opening = CommandProducer(topic="t", producer_id=7, request_id=client.request_id())
    refused = await client.ask(BaseCommand.PRODUCER, producer=opening)
    assert (refused.type, refused.error.error) == (BaseCommand.ERROR, ServerError.SERVICE_NOT_READY)
    refused = await client.try_subscribe(7)
    assert (refused.type, refused.error.error) == (BaseCommand.ERROR, ServerError.SERVICE_NOT_READY)


async def test_broker_shutdown_notifies_clients_before_disconnecting() -> None:
    """WIRE-1: entries are decided and answered, then producers and consumers are closed; then nothing is sent."""

    async with running_pulsar_broker() as scene:
        client, idle = await scene.pulsar_client(), scene.raw_client()
        opened = await client.open_producer(5)
        await client.subscribe(6)
        client.publish(5, *range(50), name=opened.producer_name)
        ending, gate = asyncio.Event(), asyncio.Event()
        release = scene.broker_session.ownership.release_bundles

        async def held() -> None:
            ending.set()
            await gate.wait()
            await release()

        scene.broker_session.ownership.release_bundles = held  # type: ignore[method-assign]
        closing = asyncio.create_task(scene.broker.close())
        await within(ending.wait(), "it begins to end")
        await _must_wait(client)
        assert not client.answers_of(BaseCommand.CLOSE_PRODUCER)
        assert not client.is_disconnected
        gate.set()
        await client.wait_disconnected()
        await idle.wait_disconnected()
        await within(closing, "its end")
        kinds = [one.type for one in client.answers]
        assert len(await client.receipts(5, 50)) == 50
        (producer,) = client.answers_of(BaseCommand.CLOSE_PRODUCER)
        (consumer,) = client.answers_of(BaseCommand.CLOSE_CONSUMER)
        assert producer.close_producer.producer_id == 5
        assert consumer.close_consumer.consumer_id == 6
        last_receipt = max(at for at, kind in enumerate(kinds) if kind == BaseCommand.SEND_RECEIPT)
        assert last_receipt < kinds.index(BaseCommand.CLOSE_PRODUCER)


async def test_one_that_reads_nothing_does_not_keep_a_broker_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """WIRE-1: it is cut off after a moment."""
    monkeypatch.setattr("magnetar_broker.server.pulsar.listener._CLOSE_TIMEOUT_S", 0.05)

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.open_producer()
        client.stop_reading()
        await within(scene.broker.close(), "its end")
        assert client.transport.lost
        assert not client.answers_of(BaseCommand.CLOSE_PRODUCER)


async def test_a_broker_that_was_paused_beyond_its_session_refuses_waiting_requests() -> None:
    """OWN-2, CHK-52: it still has its session, which it has not found over yet. Its cursors are those of before the
    pause, so a consumer would get what was acknowledged at the next owner."""
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer(5)
        client.publish(5, *range(5), name=opened.producer_name)
        await client.receipts(5, 5)
        await client.subscribe(6, sub_type=SubscriptionType.SHARED, permits=0)
        assert scene.store is not None
        scene.metadata.suspend(scene.store)
        session = scene.store.session
        session.answered_sent_at -= session.timeout_s
        refused = await client.try_subscribe(7, sub_type=SubscriptionType.SHARED)
        assert (refused.type, refused.error.error) == (BaseCommand.ERROR, ServerError.SERVICE_NOT_READY)
        assert not client.delivered


async def test_connections_outlive_a_lost_session() -> None:
    """WIRE-1, OWN-2: topics are closed, clients are notified, and look them up again on the same connection; nothing
    receipted is lost, and what was not acknowledged comes again."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer(5)
        await client.subscribe(6)
        client.publish(5, *range(50), name=opened.producer_name)
        await client.receipts(5, 50)
        delivered = await client.wait_delivered(50, 6)
        position = MessageIdData(ledgerId=delivered[29].ledger_id, entryId=delivered[29].entry_id)
        await client.acknowledge(6, [position], cumulative=True)
        gate, opens = asyncio.Event(), scene.broker._open_metadata

        async def later() -> MetadataStore:
            await gate.wait()
            return await opens()

        scene.broker._open_metadata = later
        assert scene.store is not None
        scene.metadata.expire(scene.store)
        assert (await client.wait_for_answers(BaseCommand.CLOSE_PRODUCER)).close_producer.producer_id == 5
        assert (await client.wait_for_answers(BaseCommand.CLOSE_CONSUMER)).close_consumer.consumer_id == 6
        await until(lambda: scene.broker.session is None, "the session is over")
        client.publish(5, 50, name=opened.producer_name)  # it has not heard yet: nobody takes it
        await _must_wait(client)
        client.send(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
        await client.wait_for_answers(BaseCommand.PONG)
        gate.set()
        await until(lambda: scene.broker.session is not None, "the broker has another session")
        assert not client.is_disconnected
        again = await client.open_producer(5, producer_name=opened.producer_name, epoch=1)
        assert (again.producer_name, again.last_sequence_id) == (opened.producer_name, -1)
        client.publish(5, 50, name=opened.producer_name)
        await client.receipts(5, 51)
        await client.subscribe(6)
        numbers = [decode_entry(one.entry).metadata.sequence_id for one in (await client.wait_delivered(71, 6))[50:]]
        assert numbers == list(range(30, 51))
