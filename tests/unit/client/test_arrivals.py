"""What comes from a broker and can't be handed out, or not yet; and how much is said to one at a time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from magnetar import ConsumerBatchReceivePolicy, ConsumerType, InitialPosition, MessageId
from magnetar._consume_stream import RequestBuilder
from magnetar._consumer_requests import OutboundRequests, PendingRequests
from magnetar._message import DeliveryEpoch
from magnetar._pending_acks import EpochTracker, PendingAcks
from magnetar_protos.broker_pb2 import ConsumeRequest
from magnetar_protos.entry_pb2 import CompressionType, EncryptionKeys, MessageMetadata
from magnetar_wire.batch import encode_batch, encode_message
from magnetar_wire.entry import encode_entry
from magnetar_wire.messages import Messages
from tests.running import until
from tests.unit.client.consume_scene import MemoryTopic, client_of, payloads, receive

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
SHARED = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)


def liar(messages: int) -> bytes:
    """An entry that says that it holds so many messages, and holds none."""
    metadata = MessageMetadata()
    metadata.CopyFrom(SHARED)
    metadata.num_messages_in_batch = messages
    return encode_entry(metadata, b"what is this?")


def damaged() -> bytes:
    entry = bytearray(encode_message(Messages([b"it was good once"]), SHARED))
    entry[-1] ^= 1
    return bytes(entry)


def encrypted() -> bytes:
    metadata = MessageMetadata(encryption_keys=[EncryptionKeys(key="k", value=b"v")])
    metadata.MergeFrom(SHARED)
    return encode_entry(metadata, b"secret")


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
async def test_what_is_damaged_is_left_out_acknowledged_and_named(
    kind: ConsumerType, caplog: pytest.LogCaptureFixture
) -> None:
    """It neither stays in the subscription nor keeps its permits."""

    async def go() -> None:
        async with client_of() as (broker, client):
            topic = broker.topic("t")
            good = []
            for number in range(60):
                topic.publish(b"%d" % number)
                good.append(b"%d" % number)
                if number % 2:
                    topic.store(liar(700), 700, batch=True)
                else:
                    topic.store(damaged())
            consumer = await client.subscribe("t", "s", kind, **EARLIEST, receiver_queue_size=20)
            messages = await receive(consumer, 60)
            assert payloads(messages) == good
            await consumer.acknowledge(messages, receipt=True)
            cursor = topic.cursors.cursors["s"]
            await until(lambda: cursor.mark_delete == topic.log.last, "nothing is left")

    with caplog.at_level(logging.ERROR, "magnetar"):
        await go()
    assert sum("is damaged" in record.message for record in caplog.records) == 60


async def test_what_is_encrypted_is_left_to_others(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        async with client_of() as (broker, client):
            topic = broker.topic("t")
            secret = topic.store(encrypted())
            topic.publish(b"open")
            consumer = await client.subscribe("t", "s", **EARLIEST)
            await consumer.acknowledge(await receive(consumer, 1), receipt=True)
            await consumer.close()
            cursor = topic.cursors.cursors["s"]
            assert not cursor.acknowledged(secret)
            assert cursor.acknowledged(topic.log.last)

    with caplog.at_level(logging.ERROR, "magnetar"):
        await go()
    assert [record for record in caplog.records if "encrypted" in record.message]


def publish_large(topic: MemoryTopic, count: int, size: int) -> None:
    """Entries that are small until they are decompressed, with four messages each."""
    for number in range(count):
        messages = Messages([b"%d.%d" % (number, at) + bytes(size // 4) for at in range(4)])
        topic.store(encode_batch(messages, SHARED, CompressionType.ZLIB), 4, batch=True)


def decoded_bytes(consumer: Any) -> int:
    return sum(
        len(payload) for one in consumer._core.partitions[0].partition_queue.entries for payload in one.columns.payloads
    )


@pytest.mark.parametrize("how", ["receive", "batch", "seek", "redeliver", "break"])
async def test_no_more_is_decompressed_than_there_is_room_for(how: str) -> None:
    """CON-1: what is not decoded yet waits in order, and is never stuck."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        publish_large(topic, 30, 1_000_000)
        kind = ConsumerType.Shared if how == "redeliver" else ConsumerType.Exclusive
        consumer = await client.subscribe(
            "t",
            "s",
            kind,
            **EARLIEST,
            receiver_queue_bytes=2_500_000,
            batch_receive_policy=ConsumerBatchReceivePolicy(7, -1, 100),
        )
        await until(lambda: decoded_bytes(consumer) > 0, "something has come")
        await asyncio.sleep(0.05)
        part = consumer._core.partitions[0]
        assert part._decoder._pending
        assert decoded_bytes(consumer) <= 2_500_000
        if how == "seek":
            await consumer.seek(MessageId(-1, *topic.log.order[0]))
        elif how == "redeliver":
            consumer.redeliver_unacknowledged_messages()
        elif how == "break":
            broker.break_streams()
            await until(lambda: broker.streams == 2 and consumer.is_connected(), "it is there again")
        got: list[bytes] = []
        while len(set(got)) < (116 if how == "seek" else 120):
            if how == "batch":
                got += payloads(await consumer.batch_receive())
            else:
                got += payloads(await receive(consumer, 1))
            assert decoded_bytes(consumer) <= 2_500_000
        names = [payload.rstrip(b"\0") for payload in got]
        expected = [b"%d.%d" % (number, at) for number in range(30) for at in range(4)]
        if how == "redeliver":  # without an epoch what was on its way may come twice
            assert set(names) == set(expected)
        else:
            assert names == (expected[4:] if how == "seek" else expected)


async def test_one_entry_larger_than_the_room_still_comes() -> None:
    async with client_of() as (broker, client):
        publish_large(broker.topic("t"), 3, 1_000_000)
        consumer = await client.subscribe("t", "s", **EARLIEST, receiver_queue_bytes=1000)
        assert len(await receive(consumer, 12)) == 12


def parts_of(request: ConsumeRequest) -> int:
    """As a broker counts them."""
    parts = len(request.open) + len(request.seek) + len(request.flow) + len(request.unsubscribe) + len(request.close)
    parts += sum(1 + len(one.entries) + len(one.messages) for one in request.acknowledge)
    return parts + sum(1 + len(one.entries) for one in request.redeliver)


async def test_a_request_never_has_more_parts_than_a_broker_takes() -> None:
    """CON-3, CON-5: however much is acknowledged and refused at a time, and whatever it lies between."""
    consumers = []
    for _ in range(2):
        acks, epochs = PendingAcks(), EpochTracker()
        epochs.start_opening(1, 0)
        epoch = DeliveryEpoch(None, 1, 1)
        for number in range(30_000):
            acks.add_entry(epoch, 1, 2 * number)
            acks.add_message(epoch, 2, 2 * number, 3, 9)
        outbound = OutboundRequests(acks, PendingRequests())
        outbound.redeliver = dict.fromkeys((3, 2 * number) for number in range(40_000))
        outbound.permits = 5
        consumers.append((outbound, epochs))
    acknowledged: set[tuple[int, int]] = set()
    again: list[int] = []
    waiting = dict(enumerate(consumers))
    while waiting:
        builder = RequestBuilder()
        for consumer_id, (outbound, epochs) in list(waiting.items()):
            if builder.is_full:
                break
            if outbound.fill(builder, consumer_id, epochs):
                del waiting[consumer_id]
        request = builder.request
        assert 0 < parts_of(request) <= 20_000
        assert request.ByteSize() < 2_000_000
        for one in request.acknowledge:
            assert not [redeliver for redeliver in again if redeliver == one.consumer_id], "before what comes again"
            acknowledged |= {(one.consumer_id, range_.first_entry_id) for range_ in one.entries}
            acknowledged |= {(one.consumer_id, -1 - batch.entry_id) for batch in one.messages}
        again += [one.consumer_id for one in request.redeliver for _ in one.entries]
    assert len(acknowledged) == 2 * 60_000
    assert len(again) == 2 * 40_000
