"""Messages that a producer sends in chunks: their entries, ids, results and failures."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar import CompressionType, MessageId, Result, aio, exceptions
from magnetar._producing.batch import Batch, StoredAt
from magnetar._producing.chunks_in_flight import Chunk, ChunkedMessage
from magnetar._producing.in_flight import InFlight
from magnetar.schema import StringSchema
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_testing.clock import ManualClock
from magnetar_wire.chunks import ChunkEncoder, join_chunks
from magnetar_wire.entry import Entry, decode_entry
from tests.running import until
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.scene import scene, sync_scene

MAX_MESSAGE_BYTES = 1_000
CHUNKED: Any = {"chunking_enabled": True, "batching_enabled": False}


def large(chunks: int, seed: int = 1) -> bytes:
    """A payload of this many chunks, which does not compress."""
    return random.Random(seed).randbytes(MAX_MESSAGE_BYTES * (chunks - 1) + 10)


def entries_of(broker: FakeBroker, topic: str = "t") -> list[Entry]:
    return list(map(decode_entry, broker.topic(topic).entries))


def chunk_ids(broker: FakeBroker) -> list[tuple[int, int]]:
    """The sequence id and the number of each chunk; of a whole entry, -1."""
    return [(one.metadata.sequence_id, one.metadata.chunk_id if one.is_chunk else -1) for one in entries_of(broker)]


@asynccontextmanager
async def small_entries(**options: Any) -> AsyncIterator[tuple[FakeBroker, aio.Client]]:
    async with scene(**options) as (broker, client):
        broker.max_message_bytes = MAX_MESSAGE_BYTES
        yield broker, client


@pytest.mark.parametrize("compression", list(CompressionType))
async def test_a_large_message_is_sent_in_ordered_chunks(compression: CompressionType) -> None:
    """PRD-8, MSG-2: it is compressed as a whole; all chunks have the message's metadata and one sequence id."""
    async with small_entries() as (broker, client):
        producer = await client.create_producer("t", compression_type=compression, **CHUNKED)
        content = large(4)
        await producer.send(b"small")
        await producer.send(content, {"a": "b"}, "key", "order", event_timestamp=7)
        chunks = entries_of(broker)[1:]
        assert [one.metadata.chunk_id for one in chunks] == list(range(len(chunks)))
        assert len(chunks) > 3
        assert sum(len(one.payload) for one in chunks) == chunks[0].metadata.total_chunk_msg_size
        for one in chunks:
            metadata = one.metadata
            assert len(one.payload) + metadata.ByteSize() <= MAX_MESSAGE_BYTES
            assert metadata.uuid == f"{producer.producer_name()}-1"
            assert (metadata.sequence_id, metadata.num_chunks_from_msg) == (1, len(chunks))
            assert (metadata.partition_key, metadata.ordering_key, metadata.event_time) == ("key", b"order", 7)
            assert {one.key: one.value for one in metadata.properties} == {"a": "b"}
            assert metadata.publish_time == chunks[0].metadata.publish_time
        assert join_chunks(chunks).payloads == [content]
        assert producer.last_sequence_id() == 1


async def test_only_a_message_that_does_not_fit_an_entry_is_split() -> None:
    """PRD-8: what counts is its size when it is compressed."""
    async with small_entries() as (broker, client):
        producer = await client.create_producer("t", compression_type=CompressionType.ZSTD, **CHUNKED)
        contents = [bytes(100_000), bytes(MAX_MESSAGE_BYTES), large(1), None, b""]
        for content in contents:
            assert (await producer.send(content)).first_chunk_message_id is None
        assert chunk_ids(broker) == [(number, -1) for number in range(5)]
        assert broker.topic("t").payloads() == contents


async def test_the_id_of_a_message_has_its_first_chunk() -> None:
    """MSG-3: the last chunk's id, with `first_chunk_message_id`, in bytes and pickled, too."""
    async with small_entries() as (_, client):
        producer = await client.create_producer("t", **CHUNKED)
        await producer.send(b"small")
        message_id = await producer.send(large(3))
        for one in (
            message_id,
            pickle.loads(pickle.dumps(message_id)),
            MessageId.deserialize(message_id.serialize(), message_id.topic_name()),
        ):
            first = one.first_chunk_message_id
            assert first is not None
            assert (first.ledger_id(), first.entry_id(), one.ledger_id(), one.entry_id()) == (1, 1, 1, 3)
            assert (one.topic_name(), one.batch_index()) == ("persistent://public/default/t", -1)


def test_callbacks_get_one_result_for_a_message() -> None:
    """PRD-8, PRD-1: and `flush` waits for all chunks"""
    with sync_scene() as made, made.client() as client:
        made.on_loop(lambda broker: setattr(broker, "max_message_bytes", MAX_MESSAGE_BYTES))
        producer = client.create_producer("t", **CHUNKED)
        results: list[tuple[Result, MessageId | None]] = []
        for chunks in (3, 1, 2):
            producer.send_async(large(chunks), lambda result, message_id: results.append((result, message_id)))
        producer.flush()
        assert [result for result, _ in results] == [Result.Ok] * 3
        assert [one and (one.entry_id(), one.first_chunk_message_id is not None) for _, one in results] == [
            (2, True),
            (3, False),
            (5, True),
        ]


@pytest.mark.parametrize("chunk_bytes", [MAX_MESSAGE_BYTES, 200_000])
async def test_chunks_are_resent_in_order_after_a_break(chunk_bytes: int) -> None:
    """PRD-8, PRD-9, CHK-33: those without a result, and before later messages; also if others of the message have one,
    since large chunks are answered one by one."""
    async with small_entries() as (broker, client):
        broker.max_message_bytes = chunk_bytes
        producer = await client.create_producer("t", **CHUNKED)

        def hold_receipts(entry: bytes) -> bool:
            if decode_entry(entry).metadata.chunk_id == 2:
                broker.receipting.clear()
            return False

        broker.refuses = hold_receipts
        contents = [random.Random(seed).randbytes(chunk_bytes * 3 + 10) for seed in range(2)]
        contents.append(b"small")
        tasks = [asyncio.get_running_loop().create_task(producer.send(content)) for content in contents]
        await until(lambda: len(broker.topic("t").entries) == 9, "all are stored")
        broker.refuses = lambda _: False
        flushed = asyncio.get_running_loop().create_task(producer.flush())
        await asyncio.sleep(0)
        broker.break_streams()
        broker.receipting.set()
        await flushed
        assert all(task.done() for task in tasks)
        ids = await asyncio.gather(*tasks)
        assert ids == sorted(ids)
        assert ids[1].first_chunk_message_id is not None
        sent, resent = chunk_ids(broker)[:9], chunk_ids(broker)[9:]
        assert resent == sent[-len(resent) :]
        assert resent[0][1] == 0, "a message whose last chunk was sent is resent whole"
        assert (2, -1) in resent
        assert join_chunks(entries_of(broker)[-5:-1]).payloads == contents[1:2]


async def test_a_timeout_fails_the_whole_message() -> None:
    """PRD-8, PRD-9: once, though chunks of it are stored, and the next message is sent all the same."""
    clock = ManualClock()
    async with small_entries(clock=clock) as (broker, client):
        producer = await client.create_producer("t", send_timeout_millis=5_000, **CHUNKED)
        broker.receipting.clear()
        failed = asyncio.get_running_loop().create_task(producer.send(large(5)))
        await until(lambda: len(broker.topic("t").entries) == 5, "the chunks are stored")
        clock.advance(5.1)
        with pytest.raises(exceptions.Timeout, match="no result within 5 s"):
            await failed
        broker.receipting.set()
        await producer.send(large(2))
        assert chunk_ids(broker)[-2:] == [(1, 0), (1, 1)]


async def test_a_refused_chunk_fails_the_message() -> None:
    """PRD-8: later messages are stored, and `flush` raises the error."""
    async with small_entries() as (broker, client):
        producer = await client.create_producer("t", **CHUNKED)
        broker.refuses = lambda entry: decode_entry(entry).metadata.chunk_id == 1
        failed, later = (
            asyncio.get_running_loop().create_task(producer.send(content)) for content in (large(9), b"small")
        )
        await asyncio.sleep(0)
        with pytest.raises(exceptions.ChecksumError, match="refused by the test"):
            await producer.flush()
        with pytest.raises(exceptions.ChecksumError, match="refused by the test"):
            await failed
        assert (await later).first_chunk_message_id is None
        await producer.flush()


def test_the_other_chunks_of_a_failed_message_are_dropped() -> None:
    """PRD-8: those that wait are not sent, and those that were sent are not resent; other messages stay in order."""
    in_flight = InFlight()
    batches = [Batch([content], None, None, [], 0, 0.0, number) for number, content in enumerate((b"a", b"b"))]
    message = ChunkedMessage(batches[0], ChunkEncoder(MessageMetadata(), bytes(5), "uuid", 1))
    for chunk in message.chunks:
        in_flight.append(chunk)
    in_flight.append(batches[1])
    for _ in range(2):
        in_flight.mark_first_sent()
    failed = in_flight.remove_refused(0)
    assert isinstance(failed, Chunk)
    removed = in_flight.remove_others(lambda one: isinstance(one, Chunk) and one.message is failed.message)
    assert [one.number for one in removed if isinstance(one, Chunk)] == [1, 2, 3, 4]
    assert in_flight.first_waiting() is batches[1]
    assert not list(in_flight.remove_received(1, 1)), "a late result is ignored"
    in_flight.requeue_sent()
    assert in_flight.remove_all() == [batches[1]]


@pytest.mark.parametrize(("sent", "answered", "resent"), [(4, 2, 2), (5, 0, 0), (5, 2, 0), (5, 4, 0)])
def test_a_message_is_resent_whole_if_its_last_chunk_may_be_stored(sent: int, answered: int, resent: int) -> None:
    """PRD-8, MSG-3: so its id is that of one copy. Otherwise it is resumed with the first chunk without a result."""
    in_flight = InFlight()
    message = ChunkedMessage(
        Batch([b"a"], None, None, [], 0, 0.0, 0), ChunkEncoder(MessageMetadata(), bytes(5), "u", 1)
    )
    for chunk in message.chunks:
        in_flight.append(chunk)
    stored = StoredAt("t", -1, 7, 0)
    for number in range(sent):
        in_flight.mark_first_sent()
        if number < answered:
            [(_, one)] = in_flight.remove_received(number, 1)
            assert isinstance(one, Chunk)
            assert message.add_result(one, stored._replace(entry_id=number)) is None
    in_flight.requeue_sent()
    chunks = [one for one in in_flight.remove_all() if isinstance(one, Chunk)]
    assert [one.number for one in chunks] == list(range(resent, 5))
    *before, last = [message.add_result(one, stored._replace(entry_id=10 + one.number)) for one in chunks]
    assert not any(before)
    assert last == stored._replace(entry_id=14, first_chunk=(7, 0 if resent else 10))


@pytest.mark.parametrize(("first_known", "last_known"), [(False, True), (True, False), (False, False), (True, True)])
def test_a_message_with_duplicate_chunks_has_an_id_of_both_ends_or_none(first_known: bool, last_known: bool) -> None:
    """PRD-8, MSG-3: with deduplication, chunks that are resent and were stored have no position."""
    message = ChunkedMessage(
        Batch([b"a"], None, None, [], 0, 0.0, 0), ChunkEncoder(MessageMetadata(), bytes(3), "u", 1)
    )
    duplicate, stored = StoredAt("t", -1, -1, -1), StoredAt("t", -1, 7, 5)
    for chunk in message.chunks[:2]:
        message.add_result(chunk, stored._replace(entry_id=chunk.number) if first_known else duplicate)
    result = message.add_result(message.chunks[2], stored if last_known else duplicate)
    assert result == (stored._replace(first_chunk=(7, 0)) if first_known and last_known else duplicate)


def test_pending_chunks_count_in_bytes() -> None:
    """PRD-1, PRD-8: a message counts with the size of its payload until all chunks have a result."""
    with sync_scene() as made, made.client() as client:
        made.on_loop(lambda broker: setattr(broker, "max_message_bytes", MAX_MESSAGE_BYTES))
        producer = client.create_producer("t", max_pending_bytes=10_000, **CHUNKED)
        made.on_loop(lambda broker: broker.receipting.clear())
        for seed in range(2):
            producer.send_async(large(5, seed))
        made.until(lambda broker: len(broker.topic("t").entries) == 10, "they are sent")
        with pytest.raises(exceptions.ProducerQueueIsFull, match=f"2 messages of {2 * (len(large(5)) + 24)} bytes"):
            producer.send_async(large(5, 2))
        made.on_loop(lambda broker: broker.receipting.set())
        producer.flush()
        producer.send_async(large(5, 2))
        producer.flush()


async def test_values_of_a_schema_are_sent_in_chunks() -> None:
    """PRD-8: each chunk has the schema's version."""
    async with small_entries() as (broker, client):
        producer = await client.create_producer("t", schema=StringSchema(), **CHUNKED)
        await producer.send("x" * 3_000)
        chunks = entries_of(broker)
        assert join_chunks(chunks).payloads == [b"x" * 3_000]
        assert len({one.metadata.schema_version for one in chunks}) == 1
        assert chunks[0].metadata.schema_version


async def test_chunking_is_refused_with_batching_and_on_other_topics() -> None:
    """PRD-8"""
    async with scene() as (_, client):
        with pytest.raises(exceptions.InvalidConfiguration, match=r"can't be enabled together.*batching_enabled=False"):
            await client.create_producer("t", chunking_enabled=True)
        with pytest.raises(exceptions.InvalidConfiguration, match=r"chunking_enabled = True, and non-persistent:"):
            await client.create_producer("non-persistent://public/default/t", **CHUNKED)


@pytest.mark.parametrize(("chunking", "text"), [(False, "1000: .*with chunking_enabled"), (True, "consumers read")])
async def test_a_message_that_is_too_large_is_refused(
    chunking: bool, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MSG-2, PRD-8: with the size and the limit, before it is sent"""
    limit: Callable[..., None] = monkeypatch.setattr
    limit("magnetar._producing.outgoing_message.MAX_UNCOMPRESSED_BYTES", 5_000)
    async with small_entries() as (broker, client):
        producer = await client.create_producer("t", batching_enabled=False, chunking_enabled=chunking)
        with pytest.raises(exceptions.MessageTooBig, match=text):
            await producer.send(large(8))
        assert not broker.topic("t").entries
