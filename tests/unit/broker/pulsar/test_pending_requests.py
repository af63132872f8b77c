"""The requests of a connection: their number and size are limited, and each is answered."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from magnetar_broker.topics.consumer import Consumer
from magnetar_broker.topics.topic_schemas import TopicSchemas
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    Schema,
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

        async def later(self: Consumer, positions: list[object]) -> list[int]:
            await may_read.wait()
            return [4] * len(positions)

        monkeypatch.setattr(Consumer, "find_batch_sizes", later)
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


async def test_requests_are_answered_if_something_that_they_wait_for_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """WIRE-1: every request is answered."""
    monkeypatch.setattr(logging.getLogger("magnetar_broker.server.request_errors"), "propagate", False)

    async with running_pulsar_broker(managed_ledger_cache_size_mb=0) as scene:

        async def wait_for_cancelled(*_: object, **__: object) -> Any:
            shared: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            shared.cancel()
            return await shared

        client = await scene.pulsar_client()
        await published(client, 4)
        await client.subscribe(sub_type=1)
        [one] = await client.wait_delivered(1)
        session, not_ready = scene.broker_session, ServerError.SERVICE_NOT_READY
        for owner, name in (
            (session.ownership, "find_owner"),
            (session.catalog, "resolve_partitions"),
            (session.schema_access, "read"),
            (TopicSchemas, "admit_producer"),
            (Consumer, "seek"),
            (Consumer, "unsubscribe"),
            (Consumer, "find_batch_sizes"),
        ):
            monkeypatch.setattr(owner, name, wait_for_cancelled)
        found = await client.ask(BaseCommand.LOOKUP, lookup_topic=CommandLookupTopic(topic="t", request_id=100))
        assert found.lookup_topic_response.error == not_ready
        partitions = CommandPartitionedTopicMetadata(topic="t", request_id=101)
        counted = await client.ask(BaseCommand.PARTITIONED_METADATA, partition_metadata=partitions)
        assert counted.partition_metadata_response.error == not_ready
        read = await client.ask(BaseCommand.GET_SCHEMA, get_schema=CommandGetSchema(topic="t", request_id=102))
        assert read.get_schema_response.error_code == not_ready
        schema = Schema(name="s", schema_data=b"", type=1)
        register = CommandGetOrCreateSchema(topic="t", request_id=103, schema=schema)
        registered = await client.ask(BaseCommand.GET_OR_CREATE_SCHEMA, get_or_create_schema=register)
        assert registered.get_or_create_schema_response.error_code == not_ready
        seek = CommandSeek(consumer_id=1, request_id=104, message_publish_time=0)
        assert (await client.ask(BaseCommand.SEEK, seek=seek)).error.error == not_ready
        unsubscribe = CommandUnsubscribe(consumer_id=1, request_id=105)
        assert (await client.ask(BaseCommand.UNSUBSCRIBE, unsubscribe=unsubscribe)).error.error == not_ready
        ack = CommandAck(
            consumer_id=1,
            ack_type=CommandAck.INDIVIDUAL,
            message_id=[MessageIdData(ledgerId=one.ledger_id, entryId=one.entry_id, ack_set=[1])],
            request_id=106,
        )
        assert (await client.ask(BaseCommand.ACK, ack=ack)).ack_response.error == not_ready
