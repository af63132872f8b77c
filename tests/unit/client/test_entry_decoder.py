"""Entries that can't be decoded, or not yet."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from magnetar import ConsumerBatchReceivePolicy, ConsumerType, InitialPosition, MessageId
from magnetar_protos.entry_pb2 import CompressionType, EncryptionKeys, MessageMetadata
from magnetar_wire.batch import encode_batch, encode_message
from magnetar_wire.entry import encode_entry
from magnetar_wire.messages import Messages
from tests.running import until
from tests.unit.client.consume_scene import MemoryTopic, client_of, payloads, receive

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
SHARED = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)


def false_batch(messages: int) -> bytes:
    """Make an entry whose metadata claims a batch of this size, and whose payload is no batch."""
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


def publish_large(topic: MemoryTopic, count: int, size: int) -> None:
    """Entries that are small until they are decompressed, with four messages each."""
    for number in range(count):
        messages = Messages([b"%d.%d" % (number, at) + bytes(size // 4) for at in range(4)])
        topic.store(encode_batch(messages, SHARED, CompressionType.ZLIB), 4, batch=True)


def decoded_bytes(consumer: Any) -> int:
    return sum(
        len(payload) for one in consumer._core.partitions[0].partition_queue.entries for payload in one.columns.payloads
    )


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
async def test_a_damaged_entry_is_skipped_acknowledged_and_logged(
    kind: ConsumerType, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise it would stay in the subscription and occupy permits."""

    async def go() -> None:
        async with client_of() as (broker, client):
            topic = broker.topic("t")
            good = []
            for number in range(60):
                topic.publish(b"%d" % number)
                good.append(b"%d" % number)
                if number % 2:
                    topic.store(false_batch(700), 700, batch=True)
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


async def test_an_encrypted_entry_is_skipped_and_stays_in_the_subscription(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        async with client_of() as (broker, client):
            topic = broker.topic("t")
            secret = topic.store(encrypted())
            topic.publish(b"open")
            consumer = await client.subscribe("t", "s", **EARLIEST)
            await consumer.acknowledge(await receive(consumer, 1), receipt=True)
            await consumer.close()
            cursor = topic.cursors.cursors["s"]
            assert not cursor.is_acknowledged(secret)
            assert cursor.is_acknowledged(topic.log.last)

    with caplog.at_level(logging.ERROR, "magnetar"):
        await go()
    assert [record for record in caplog.records if "encrypted" in record.message]


@pytest.mark.parametrize("how", ["receive", "batch", "seek", "redeliver", "break"])
async def test_entries_are_decompressed_only_while_there_is_capacity(how: str) -> None:
    """CON-1: entries that are not decoded yet wait in order, and are never stuck."""
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
        if how == "redeliver":  # without an epoch, messages in flight may be delivered twice
            assert set(names) == set(expected)
        else:
            assert names == (expected[4:] if how == "seek" else expected)


async def test_an_entry_that_is_larger_than_the_capacity_is_delivered() -> None:
    async with client_of() as (broker, client):
        publish_large(broker.topic("t"), 3, 1_000_000)
        consumer = await client.subscribe("t", "s", **EARLIEST, receiver_queue_bytes=1000)
        assert len(await receive(consumer, 12)) == 12
