"""Messages in chunks, as consumers, readers and table views get them."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from magnetar import ConsumerBatchReceivePolicy, ConsumerType, DecodeFailureAction, InitialPosition, Message, MessageId
from magnetar.exceptions import DecodeError, MemoryBufferIsFull
from magnetar.schema import Int64Schema, StringSchema
from magnetar_broker.position import Position
from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_testing.clock import ManualClock
from magnetar_wire.chunks import encode_chunks
from magnetar_wire.entry import encode_entry
from magnetar_wire.messages import Messages
from tests.running import until
from tests.unit.broker.fake_cursors import FakeCursor
from tests.unit.client.consume_scene import MemoryTopic, client_of, payloads, receive, receive_all

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
IN_ORDER = [ConsumerType.Exclusive, ConsumerType.Failover]
CHUNK_BYTES = 10


class ChunkedTopic:
    """Stores chunks of messages whose content is their name, repeated."""

    def __init__(self, topic: MemoryTopic) -> None:
        self.topic = topic
        self.contents: dict[str, bytes] = {}

    def begin(
        self, name: str, chunks: int, compression: CompressionType = CompressionType.NONE, **columns: Any
    ) -> Iterator[tuple[int, int]]:
        """Store a chunk at each step. Yields its position."""
        content = columns.pop("content", (name * 10_000).encode()[: CHUNK_BYTES * chunks])
        self.contents[name] = content
        shared = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
        if version := columns.pop("schema_version", b""):
            shared.schema_version = version
        message = Messages([content], **columns)
        for chunk in encode_chunks(message, shared, name, CHUNK_BYTES, compression):
            yield self.topic.store(chunk)

    def store(self, order: str, **chunks: int) -> list[tuple[int, int]]:
        """Store the next chunk of the message of each letter; "." stores a small message. `chunks`: 2 by default."""
        begun: dict[str, Iterator[tuple[int, int]]] = {}
        positions: list[tuple[int, int]] = []
        for name in order:
            if name == ".":
                positions.append(self.topic.publish(b"."))
                continue
            if name not in begun:
                begun[name] = self.begin(name, chunks.get(name, 2))
            positions.append(next(begun[name]))
        return [(one[0], one[1]) for one in positions]

    def whole(self, names: str) -> list[bytes]:
        return [b"." if name == "." else self.contents[name] for name in names]


def get_first(message: Message[Any]) -> MessageId:
    """The id of the entry with which a message begins."""
    return message.message_id().first_chunk_message_id or message.message_id()


def is_acknowledged(cursor: FakeCursor, position: Any) -> bool:
    return cursor.is_acknowledged(Position(*position))


@pytest.mark.parametrize("kind", IN_ORDER)
@pytest.mark.parametrize("queue_size", [0, 1, 1000])
async def test_mixed_chunks_are_joined_for_any_queue_size(kind: ConsumerType, queue_size: int) -> None:
    """CON-7, CON-1: a message may have more chunks than the receiver queue has capacity."""
    async with client_of() as (broker, client):
        chunked = ChunkedTopic(broker.topic("t"))
        chunked.store("aab.cbc" + "d" * 20, d=20)
        consumer = await client.subscribe("t", "s", kind, receiver_queue_size=queue_size, **EARLIEST)
        chunked.store("efe.f" + "g" * 60, g=60)
        assert payloads(await receive(consumer, 9)) == chunked.whole("a.bcde.fg")


@pytest.mark.parametrize("compression", list(CompressionType.values()))
async def test_a_joined_message_has_all_that_it_was_sent_with(compression: Any) -> None:
    """CON-7, MSG-3: one id, with the first chunk's, stands for the whole; a pickled message has the same."""
    async with client_of() as (broker, client):
        chunked = ChunkedTopic(broker.topic("t"))
        content = bytes(range(256))
        columns: Any = {"keys": ["k"], "properties": [{"a": "b"}], "event_times": [7], "content": content}
        positions = list(chunked.begin("a", 9, compression, **columns))
        consumer = await client.subscribe("t", "s", **EARLIEST)
        received = await consumer.receive(60_000)
        for message in (received, pickle.loads(pickle.dumps(received))):
            assert message.data() == content
            assert (message.partition_key(), message.properties(), message.event_timestamp()) == ("k", {"a": "b"}, 7)
            message_id = message.message_id()
            first = message_id.first_chunk_message_id
            assert first is not None
            assert (first.ledger_id(), first.entry_id()) == positions[0]
            assert (message_id.ledger_id(), message_id.entry_id()) == positions[-1]
            assert message.index() == len(positions) - 1


@pytest.mark.parametrize("how", ["message", "list", "id", "stored id", "cumulative", "cumulative id", "reader id"])
async def test_an_acknowledgement_covers_all_chunks_of_its_message_alone(how: str) -> None:
    """CON-7, CON-3: chunks of a later message, which lie before it, stay: that is redelivered whole."""
    async with client_of() as (broker, client):
        chunked = ChunkedTopic(broker.topic("t"))
        positions = chunked.store("abaccb.ba", a=3, b=3)
        consumer = await client.subscribe("t", "s", ack_grouping_time_ms=0, **EARLIEST)
        messages = await receive(consumer, 4)
        assert payloads(messages) == chunked.whole("c.ba")
        first, small, large = messages[:3]
        if how.startswith("cumulative"):
            target = large.message_id() if how.endswith("id") else large
            await consumer.acknowledge_cumulative(target, receipt=True)
        else:
            await consumer.acknowledge([first, small], receipt=True)
            data = large.message_id().serialize()
            acknowledged: Any = {
                "message": large,
                "list": [large],
                "id": large.message_id(),
                "stored id": MessageId.deserialize(data, large.topic_name()),
                "reader id": MessageId.deserialize(data),
            }[how]
            await consumer.acknowledge(acknowledged, receipt=True)
        cursor = broker.topic("t").cursors.cursors["s"]
        left = [at for at, position in enumerate(positions) if not is_acknowledged(cursor, position)]
        assert left == [0, 2, 8], "the chunks of a"
        await consumer.close()
        consumer = await client.subscribe("t", "s")
        message = await consumer.receive(60_000)
        assert message.data() == chunked.contents["a"]
        await consumer.acknowledge_cumulative(message, receipt=True)
        assert cursor.mark_delete == positions[-1]


async def test_a_cumulative_acknowledgement_leaves_an_incomplete_message() -> None:
    """CON-7: also if it covers a part of a batch."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        chunked = ChunkedTopic(topic)
        a = chunked.begin("a", 2)
        topic.publish(b"0")
        first = next(a)
        topic.publish(b"1")
        topic.publish(b"2", b"3")
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await receive(consumer, 4)
        await consumer.acknowledge_cumulative(messages[2], receipt=True)
        cursor = topic.cursors.cursors["s"]
        assert not is_acknowledged(cursor, first)
        next(a)
        assert (await consumer.receive(60_000)).data() == chunked.contents["a"]
        consumer.redeliver_unacknowledged_messages()
        assert payloads(await receive(consumer, 2)) == [b"3", chunked.contents["a"]]
        await consumer.acknowledge_cumulative(messages[3], receipt=True)
        assert cursor.mark_delete < first


@pytest.mark.parametrize("how", ["nack", "redeliver", "unload"])
@pytest.mark.parametrize("kind", IN_ORDER)
async def test_messages_are_redelivered_whole(kind: ConsumerType, how: str) -> None:
    """CON-7, CON-5: what was joined, and what was incomplete: a new epoch drops that, and delivers it again."""
    async with client_of() as (broker, client):
        chunked = ChunkedTopic(broker.topic("t"))
        chunked.store("aabb.")
        incomplete = chunked.begin("c", 3)
        next(incomplete)
        next(incomplete)
        consumer = await client.subscribe("t", "s", kind, negative_ack_redelivery_delay_ms=10, **EARLIEST)
        first = await receive(consumer, 3)
        await consumer.acknowledge(first[0], receipt=True)
        if how == "nack":
            await consumer.negative_acknowledge(first[1])
        elif how == "redeliver":
            consumer.redeliver_unacknowledged_messages()
        else:
            await broker.unload("t")
        again = await receive(consumer, 2)
        assert payloads(again) == chunked.whole("b.")
        assert how == "unload" or [one.redelivery_count() for one in again] == [1, 1]
        next(incomplete)
        last = await consumer.receive(60_000)
        assert last.data() == chunked.contents["c"]
        await consumer.acknowledge_cumulative(last, receipt=True)
        assert broker.topic("t").cursors.cursors["s"].mark_delete == broker.topic("t").log.last


async def test_incomplete_messages_expire_only_while_chunks_could_come(caplog: pytest.LogCaptureFixture) -> None:
    """CON-7: after `expire_time_of_incomplete_chunked_message_ms`; not while the application receives nothing."""
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        topic = broker.topic("t")
        chunked = ChunkedTopic(topic)
        b = chunked.begin("b", 3)
        positions = chunked.store("..") + [(one[0], one[1]) for one in (next(b),)] + chunked.store("...")
        consumer = await client.subscribe("t", "s", receiver_queue_size=2, ack_grouping_time_ms=0, **EARLIEST)

        def has_got(messages: int, permits: int) -> bool:
            [theirs] = topic.subscriptions.stats()[0].consumers
            return theirs.counters.delivered.messages == messages and theirs.permits == permits

        messages = await receive(consumer, 2)
        await until(lambda: has_got(5, 0), "the queue is full")
        await consumer.acknowledge(messages, receipt=True)  # answered behind the deliveries
        with caplog.at_level(logging.ERROR, "magnetar"):
            clock.advance(61)
            assert not caplog.records
            messages = await receive(consumer, 3)
            await until(lambda: has_got(6, 2), "there is capacity")
            await consumer.acknowledge(messages, receipt=True)
            clock.advance(61)
        assert "1 of 3 chunks" in caplog.text
        cursor = topic.cursors.cursors["s"]
        await until(lambda: is_acknowledged(cursor, positions[2]), "the chunk is acknowledged")
        late = next(b)
        await until(lambda: is_acknowledged(cursor, late), "the late chunk is acknowledged")


@pytest.mark.parametrize("acks", [False, True])
async def test_an_incomplete_message_is_dropped_for_others(acks: bool, caplog: pytest.LogCaptureFixture) -> None:
    """CON-7: `max_pending_chunked_message`: it is left for redelivery, and a cumulative acknowledgement leaves it, too;
    or acknowledged with `auto_ack_oldest_chunked_message_on_queue_full`."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        chunked = ChunkedTopic(topic)
        positions = chunked.store("abcabc")
        options: Any = {"auto_ack_oldest_chunked_message_on_queue_full": acks, "max_pending_chunked_message": 2}
        with caplog.at_level(logging.ERROR, "magnetar"):
            consumer = await client.subscribe("t", "s", **options, **EARLIEST)
            messages = await receive(consumer, 2)
        assert payloads(messages) == chunked.whole("bc")
        assert "max_pending_chunked_message" in caplog.text
        await consumer.acknowledge_cumulative(messages[-1], receipt=True)
        cursor = topic.cursors.cursors["s"]
        assert all(is_acknowledged(cursor, positions[at]) for at in (1, 2, 4, 5))
        assert is_acknowledged(cursor, positions[0]) == is_acknowledged(cursor, positions[3]) == acks
        if not acks:
            consumer.redeliver_unacknowledged_messages()
            assert (await consumer.receive(60_000)).data() == chunked.contents["a"]


@pytest.mark.parametrize("limit", ["max_pending_chunked_message", "max_pending_chunked_bytes"])
async def test_a_reader_ends_with_an_error_instead_of_losing_a_message(limit: str) -> None:
    """CON-7, CON-11: only when a message that was dropped for others is complete; by default 20 are not too many."""
    async with client_of() as (broker, client):
        chunked = ChunkedTopic(broker.topic("t"))
        names = "abcdefghijklmnopqrst"
        chunked.store("." + names + names)
        reader = await client.create_reader("t", MessageId.earliest)
        assert [(await reader.read_next(60_000)).data() for _ in range(21)] == chunked.whole("." + names)
        few: Any = {limit: 2 if limit.endswith("message") else 2_000}
        small = await client.create_reader("t", MessageId.earliest, **few)
        with pytest.raises(MemoryBufferIsFull, match=r"from entry 7:1 on.*max_pending_chunked_bytes"):
            while True:
                assert (await small.read_next(60_000)).data() == b"."
        with pytest.raises(MemoryBufferIsFull, match=r"from entry 7:1 on"):
            await client.create_table_view("t", max_pending_chunked_bytes=2_000)
        lost = ChunkedTopic(broker.topic("lost"))
        lost.store("abcd.")
        reader = await client.create_reader("lost", MessageId.earliest, **few)
        assert (await reader.read_next(60_000)).data() == b".", "dropped messages are not complete"


async def test_a_message_that_cannot_be_read_is_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    """CON-7: without its first chunk, with a gap, or damaged, it would stay in the subscription for ever."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        chunked = ChunkedTopic(topic)
        a = chunked.begin("a", 3)
        next(a)
        await (await client.subscribe("t", "s")).close()  # it begins at the latest
        list(a)
        gap = [encode_chunk("gap", chunk, 3) for chunk in (0, 2)]
        damaged = [encode_chunk("damaged", chunk, 2, compression=CompressionType.LZ4) for chunk in range(2)]
        bomb = [encode_chunk("bomb", chunk, 2, compression=CompressionType.ZLIB) for chunk in range(2)]
        for entry in (*gap, *damaged, *bomb):
            topic.store(entry)
        chunked.store("c.c")
        with caplog.at_level(logging.INFO, "magnetar"):
            consumer = await client.subscribe("t", "s")
            messages = await receive(consumer, 2)
        assert payloads(messages) == chunked.whole(".c")
        for text in ("begins with chunk 1 of 3", "chunk 1 is missing", "not a valid LZ4", "not a valid ZLIB"):
            assert text in caplog.text
        await consumer.acknowledge(messages, receipt=True)
        assert topic.cursors.cursors["s"].mark_delete == topic.log.last


def encode_chunk(name: str, chunk: int, chunks: int, **fields: Any) -> bytes:
    """A chunk of a message whose payload is ten zeros for each chunk and compression."""
    values: dict[str, Any] = {"producer_name": "p", "sequence_id": 1, "publish_time": 1, "uuid": name}
    values |= {"chunk_id": chunk, "num_chunks_from_msg": chunks, "total_chunk_msg_size": 10 * chunks}
    return encode_entry(MessageMetadata(uncompressed_size=100_000_000, **values, **fields), bytes(10))


async def test_a_shared_subscription_leaves_chunks_and_logs_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """CON-7: Exclusive and Failover only: one error for a message, which stays for a consumer that can join it."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        chunked = ChunkedTopic(topic)
        positions = chunked.store("aaa.", a=3)
        with caplog.at_level(logging.ERROR, "magnetar"):
            consumer = await client.subscribe("t", "s", ConsumerType.Shared, **EARLIEST)
            message = await consumer.receive(60_000)
        assert message.data() == b"."
        await consumer.acknowledge(message, receipt=True)
        await consumer.close()
        [record] = caplog.records
        assert "not joined on a Shared or Key_Shared subscription: use Exclusive or Failover" in record.getMessage()
        cursor = topic.cursors.cursors["s"]
        assert [is_acknowledged(cursor, position) for position in positions] == [False] * 3 + [True]


async def test_readers_begin_at_the_first_chunk_or_behind_the_last() -> None:
    """CON-7, CON-11, MSG-3: from earliest, an id, a time; a seek to an id with `start_message_id_inclusive` goes to the
    first chunk."""
    async with client_of() as (broker, client):
        chunked = ChunkedTopic(broker.topic("t"))
        chunked.store("aa.bbb.cc", b=3)
        consumer = await client.subscribe("t", "s", **EARLIEST)
        ids = [message.message_id() for message in await receive(consumer, 5)]
        for stored in (False, True):
            where = MessageId.deserialize(ids[2].serialize()) if stored else ids[2]
            for start, inclusive, expected in (
                (where, True, "b.c"),
                (where, False, ".c"),
                (MessageId.earliest, False, "a.b.c"),
                (MessageId.latest, True, "c"),
                (0, False, "a.b.c"),
            ):
                reader = await client.create_reader("t", start, start_message_id_inclusive=inclusive)
                read = []
                while await reader.has_message_available():
                    read.append((await reader.read_next(60_000)).data())
                assert read == chunked.whole(expected)
                await reader.seek(where)
                assert (await reader.read_next(60_000)).data() == chunked.whole("b" if inclusive else ".")[0]
                await reader.close()
        await consumer.close()
        consumer = await client.subscribe("t", "s", start_message_id_inclusive=True)
        await consumer.seek(ids[2])
        assert payloads(await receive(consumer, 3)) == chunked.whole("b.c")


@pytest.mark.parametrize("order", ["bababa", "aa.ab.bb", "ba.bccaba"])
async def test_the_chosen_message_is_the_first_that_an_inclusive_start_hands_out(order: str) -> None:
    """CON-7, CON-11, MSG-3: also if messages of other producers are complete between its chunks: from its id, from the
    latest message, whose id the broker has, too, and by a seek, which leaves nothing unacknowledged."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        chunked = ChunkedTopic(topic)
        chunked.store(order, a=3, b=3)
        options: Any = {"start_message_id_inclusive": True}
        consumer = await client.subscribe("t", "s", ack_grouping_time_ms=0, **options, **EARLIEST)
        messages = await receive_all(consumer)
        for at, message in enumerate(messages):
            begins = get_first(message)
            expected = payloads([one for one in messages[at:] if get_first(one) >= begins])
            reader = await client.create_reader("t", message.message_id(), **options)
            assert [(await reader.read_next(60_000)).data() for _ in expected] == expected
            assert not await reader.has_message_available()
            await consumer.seek(message.message_id())
            again = await receive(consumer, len(expected))
            assert payloads(again) == expected
            for one in again:
                await consumer.acknowledge(one, receipt=True)
        reader = await client.create_reader("t", MessageId.latest, **options)
        last = messages[-1].message_id()
        assert (await reader.read_next(60_000)).message_id() == last
        assert not await reader.has_message_available()
        assert str(await consumer.get_last_message_id()) == str(last)
        assert topic.cursors.cursors["s"].mark_delete == topic.log.last


@pytest.mark.parametrize("queue_size", [0, 1, 1000])
async def test_an_incomplete_last_message_is_not_available(queue_size: int) -> None:
    """CON-7, CON-11: `has_message_available` is true only if a read returns; the reader goes on with it after a
    reconnection."""
    async with client_of() as (broker, client):
        chunked = ChunkedTopic(broker.topic("t"))
        chunked.store(".")
        a = chunked.begin("a", 3)
        next(a)
        reader = await client.create_reader("t", MessageId.earliest, receiver_queue_size=queue_size)
        assert (await reader.read_next(60_000)).data() == b"."
        assert not await reader.has_message_available()
        next(a)
        assert not await reader.has_message_available()
        streams = broker.streams
        broker.break_streams()
        await until(lambda: broker.streams > streams and reader.is_connected(), "it is reconnected")
        next(a)
        assert await reader.has_message_available()
        assert (await reader.read_next(60_000)).data() == chunked.contents["a"]
        assert not await reader.has_message_available()


async def test_batches_and_table_views_have_whole_messages() -> None:
    """CON-7, CON-2, CON-11"""
    async with client_of() as (broker, client):
        chunked = ChunkedTopic(broker.topic("t"))
        for name in "abc":
            list(chunked.begin(name, 3, keys=[name]))
        policy = ConsumerBatchReceivePolicy(max_num_message=10, max_num_bytes=50, timeout_ms=60_000)
        consumer = await client.subscribe("t", "s", batch_receive_policy=policy, **EARLIEST)
        assert payloads(await consumer.batch_receive()) == chunked.whole("a")
        view = await client.create_table_view("t")
        assert {key: view.get(key) for key in "abc"} == chunked.contents


async def test_values_of_joined_messages() -> None:
    """CON-7, with a schema: a value is decoded, or raises its DecodeError, or is skipped with all of its chunks."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        chunked = ChunkedTopic(topic)
        version = broker.add_schema(str(topic.name), StringSchema().schema_info().to_message())
        list(chunked.begin("a", 3, schema_version=version))
        consumer = await client.subscribe("t", "s", schema=StringSchema(), **EARLIEST)
        assert (await consumer.receive(60_000)).value() == chunked.contents["a"].decode()
        failing = await client.subscribe("t", "f", schema=Int64Schema(), **EARLIEST)
        with pytest.raises(DecodeError):
            (await failing.receive(60_000)).value()
        skipping: Any = {"schema": Int64Schema(), "decode_failure_action": DecodeFailureAction.SKIP, **EARLIEST}
        await client.subscribe("t", "skips", ack_grouping_time_ms=0, **skipping)
        await until(lambda: topic.cursors.cursors["skips"].mark_delete == topic.log.last, "all chunks are acknowledged")
