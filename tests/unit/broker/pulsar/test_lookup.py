"""What a client asks to find its way, by its answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar_broker.errors import BrokerError, DamagedEntry, LostEntry
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.log_reader import LogReader
from magnetar_broker.position import Position
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.entry_pb2 import MessageIdData, MessageMetadata
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    ServerError,
)
from magnetar_wire.batch import encode_batch
from magnetar_wire.messages import Messages
from magnetar_wire.topic_name import TopicName
from tests.produce_client import entry
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import PulsarClient, sent
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

_NONE = 2**64 - 1


async def _lookup(client: PulsarClient, topic: str, **fields: Any) -> CommandLookupTopicResponse:
    command = CommandLookupTopic(topic=topic, request_id=client.request_id(), **fields)
    return (await client.ask(BaseCommand.LOOKUP, lookup_topic=command)).lookup_topic_response


async def _partitions(client: PulsarClient, topic: str, **fields: Any) -> CommandPartitionedTopicMetadataResponse:
    command = CommandPartitionedTopicMetadata(topic=topic, request_id=client.request_id(), **fields)
    answer = await client.ask(BaseCommand.PARTITIONED_METADATA, partition_metadata=command)
    return answer.partition_metadata_response


async def _try_last(client: PulsarClient, consumer_id: int = 1) -> BaseCommand:
    command = CommandGetLastMessageId(consumer_id=consumer_id, request_id=client.request_id())
    return await client.ask(BaseCommand.GET_LAST_MESSAGE_ID, get_last_message_id=command)


async def _last(client: PulsarClient) -> CommandGetLastMessageIdResponse:
    answer = await _try_last(client)
    assert answer.type == BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, answer
    return answer.get_last_message_id_response


def _position(message_id: MessageIdData) -> tuple[int, int]:
    return message_id.ledgerId, message_id.entryId


def _batch(sequence_id: int, producer: str) -> bytes:
    shared = MessageMetadata(producer_name=producer, sequence_id=sequence_id, publish_time=1)
    return encode_batch(Messages([b"x"] * 5), shared)


async def test_a_topic_that_can_not_be_is_refused_by_the_code_that_pulsar_has_for_it() -> None:
    """As a Pulsar 4.0.7 answered it. WIRE-1."""
    refused = {
        "one/two": ServerError.INVALID_TOPIC_NAME,
        "persistent://public/default": ServerError.INVALID_TOPIC_NAME,
        "nobody/default/t": ServerError.TOPIC_NOT_FOUND,
        "public/nowhere/t": ServerError.TOPIC_NOT_FOUND,
        "x" * 100_000: ServerError.INVALID_TOPIC_NAME,
    }

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        for topic, error in refused.items():
            found = await _lookup(client, topic)
            assert (found.response, found.error) == (CommandLookupTopicResponse.FAILED, error)
            counted = await _partitions(client, topic)
            assert (counted.response, counted.error) == (CommandPartitionedTopicMetadataResponse.FAILED, error)
            assert len(found.message) < 2000
        assert not client.is_disconnected


async def test_partition_metadata_of_existing_and_missing_topics() -> None:
    """WIRE-1."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await scene.admin.topics.create_partitioned("parted", 3)
        assert (await _partitions(client, "parted")).partitions == 3
        assert (await _partitions(client, "parted-partition-2")).partitions == 0
        made = await _partitions(client, "new")
        assert (made.response, made.partitions) == (CommandPartitionedTopicMetadataResponse.SUCCESS, 0)
        not_made = await _partitions(client, "other", metadata_auto_creation_enabled=False)
        assert not_made.error == ServerError.TOPIC_NOT_FOUND
        other_kind = await _partitions(client, "non-persistent://public/default/t")
        assert (other_kind.response, other_kind.partitions) == (CommandPartitionedTopicMetadataResponse.SUCCESS, 0)


async def test_unexpected_exception_is_answered_with_unknown_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """WIRE-1: nobody waits for an answer that never comes."""
    monkeypatch.setattr(logging.getLogger("magnetar_broker.server.request_errors"), "propagate", False)

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()

        async def fails(*_: object) -> None:
            raise KeyError("a bug")

        monkeypatch.setattr(scene.broker_session.ownership, "find_owner", fails)
        monkeypatch.setattr(scene.broker_session.catalog, "resolve_partitions", fails)
        found, counted = await _lookup(client, "t"), await _partitions(client, "t")
        assert (found.response, found.error) == (CommandLookupTopicResponse.FAILED, ServerError.UNKNOWN_ERROR)
        assert counted.response == CommandPartitionedTopicMetadataResponse.FAILED
        assert counted.error == ServerError.UNKNOWN_ERROR
        assert "bug" not in found.message + counted.message


async def test_a_listener_that_nobody_knows_is_named_in_few_words() -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        found = await _lookup(client, "t", advertised_listener_name="x" * 500_000)
        assert found.response == CommandLookupTopicResponse.FAILED
        assert len(found.message) < 2000
        assert not client.is_disconnected


async def test_lookups_above_the_limit_return_too_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_pulsar_broker(max_concurrent_lookup_request=2) as scene:
        client = await scene.pulsar_client()
        go_on = asyncio.Event()

        async def partitions(name: TopicName, create: bool) -> int:
            await go_on.wait()
            return 5

        monkeypatch.setattr(scene.broker_session.catalog, "resolve_partitions", partitions)
        waiting = [asyncio.create_task(_partitions(client, f"t{number}")) for number in range(2)]
        await until(lambda: scene.context.server.lookup_limit.in_flight == 2, "they wait")
        assert (await _lookup(client, "other")).error == ServerError.TOO_MANY_REQUESTS
        assert (await _partitions(client, "other")).error == ServerError.TOO_MANY_REQUESTS
        go_on.set()
        assert [one.partitions for one in await asyncio.gather(*waiting)] == [5, 5]
        assert (await _lookup(client, "other")).response == CommandLookupTopicResponse.CONNECT


async def test_last_message_id_includes_batch_index_and_mark_delete() -> None:
    """WIRE-1. Libraries hold one against the other to say whether there is more to read."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer()
        await client.subscribe()
        nothing = await _last(client)
        assert nothing.last_message_id.entryId == _NONE
        name = opened.producer_name
        client.send_bytes(sent(1, 0, entry(0, producer=name)))
        [single] = await client.receipts(1, 1)
        one = await _last(client)
        assert _position(one.last_message_id) == _position(single.message_id)
        assert one.last_message_id.batch_index == -1
        client.send_bytes(sent(1, 1, _batch(1, name)))
        receipts = await client.receipts(1, 2)
        batch = receipts[1].message_id
        two = await _last(client)
        assert _position(two.last_message_id) == _position(batch)
        assert (two.last_message_id.batch_index, two.last_message_id.batch_size) == (4, 5)
        assert _position(two.consumer_mark_delete_position) < _position(single.message_id) or (
            two.consumer_mark_delete_position.entryId == _NONE
        )
        await client.wait_delivered(2)
        await client.acknowledge(1, [single.message_id, batch])
        assert _position((await _last(client)).consumer_mark_delete_position) == _position(batch)


async def test_of_a_topic_that_was_emptied_there_is_no_last_message() -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer()
        await client.subscribe()
        client.publish(1, 0, 1, name=opened.producer_name)
        await client.receipts(1, 2)
        await scene.admin.topics.truncate("t")
        await client.subscribe(2, subscription="other")
        command = CommandGetLastMessageId(consumer_id=2, request_id=client.request_id())
        answer = await client.ask(BaseCommand.GET_LAST_MESSAGE_ID, get_last_message_id=command)
        response = answer.get_last_message_id_response
        assert response.last_message_id.entryId == _NONE
        client.publish(1, 2, name=opened.producer_name)
        receipts = await client.receipts(1, 3)
        command.request_id = client.request_id()
        answer = await client.ask(BaseCommand.GET_LAST_MESSAGE_ID, get_last_message_id=command)
        assert _position(answer.get_last_message_id_response.last_message_id) == _position(receipts[2].message_id)


async def test_last_message_id_skips_lost_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-67: a lost last entry is passed over, or a client that reads up to the last message would wait for ever."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer()
        await client.subscribe()
        client.publish(1, 0, 1, name=opened.producer_name)
        first, last = [Position(*_position(receipt.message_id)) for receipt in await client.receipts(1, 2)]
        lost: list[Position] = []
        read_at = LogReader.read_at

        async def read(log: LogReader, positions: Sequence[Position]) -> list[LogEntry | None]:
            for position in positions:
                if position in lost:
                    raise LostEntry(position, "lost") if position == last else DamagedEntry(position, "bad")
            return await read_at(log, positions)

        monkeypatch.setattr(LogReader, "read_at", read)
        assert _position((await _last(client)).last_message_id) == last
        lost.append(last)
        assert _position((await _last(client)).last_message_id) == first
        lost.append(first)
        assert (await _last(client)).last_message_id.entryId == _NONE

        async def not_now(log: LogReader, positions: Sequence[Position]) -> list[LogEntry | None]:
            raise BrokerError(ErrorCode.PERSISTENCE_ERROR, "not now")

        monkeypatch.setattr(LogReader, "read_at", not_now)
        assert (await _try_last(client)).error.error == ServerError.PERSISTENCE_ERROR


async def test_last_message_id_of_unknown_consumer_returns_not_ready() -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        assert (await _try_last(client, 7)).error.error == ServerError.SERVICE_NOT_READY
        assert not client.is_disconnected


async def test_a_library_that_counts_partitions_again_reads_new_ones_from_the_first_message() -> None:
    """TOP-3, CHK-56: though its consumer begins at the latest, as the subscription did. Producers use what they have
    counted until then."""

    async with running_pulsar_broker() as scene:
        await scene.admin.topics.create_partitioned("p", 1)
        client = await scene.pulsar_client()
        await client.subscribe(1, "p-partition-0", initial_position=0)
        opened = await client.open_producer(1, "p-partition-0")
        await scene.admin.topics.update_partitioned("p", 2)
        client.publish(1, 0, name=opened.producer_name)
        assert len(await client.wait_delivered(1)) == 1
        opened = await client.open_producer(2, "p-partition-1")
        client.publish(2, 0, 1, name=opened.producer_name)
        await client.receipts(2, 2)
        assert (await _partitions(client, "p")).partitions == 2
        await client.subscribe(2, "p-partition-1", initial_position=0)
        assert len(await client.wait_delivered(2, 2)) == 2
