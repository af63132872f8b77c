"""The broker's end of a `produce` stream: requests and answers over a transport within the process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from crc32c import crc32c

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_protos.broker_pb2 import (
    CloseProducer,
    ErrorCode,
    OpenProducer,
    ProduceRequest,
)
from magnetar_protos.entry_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, MessageMetadata
from magnetar_protos.frame_pb2 import Frame, Run
from magnetar_wire.batch import encode_batch
from magnetar_wire.limits import MAX_MESSAGE_BYTES, MAX_METADATA_BYTES
from magnetar_wire.messages import Messages
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Rejected
from tests.produce_client import entry
from tests.running import until, within
from tests.unit.broker.produce_server import running_produce_server
from tests.unit.broker.topic_scene import NAME


async def test_entries_are_stored_in_order_and_receipts_are_ranges() -> None:
    """PRD-10, and receipts as ranges: entries that lie one behind the other are one receipt."""

    async with running_produce_server() as (server, connect):
        client = connect()
        opened = await client.open(1, "")
        assert opened.producer_name
        assert opened.incarnation == "i1"
        assert opened.last_sequence_id == -1
        assert opened.max_message_bytes == MAX_MESSAGE_BYTES
        entries = [entry(n, producer=opened.producer_name) for n in range(100)]
        await client.send((1, 0, entries[:60]))
        await client.send((1, 60, entries[60:]))
        await until(lambda: len(client.receipts) == 100, "all are receipted")
        assert server.log().stored == entries
        assert client.receipts == {(1, n): (7, n) for n in range(100)}
        assert client.ranges <= 4
        counters = server.storage.opened[0].counters
        assert counters.received.entries == counters.received.messages == 100
        assert counters.received.bytes == sum(map(len, entries))
        assert server.budget.used_bytes == server.storage.opened[0].budget.used_bytes == 0
        assert server.storage.counters.publish_seconds.count == 100


async def test_opening_is_answered_if_something_that_it_waits_for_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the client would wait until its timeout, and so would each further producer of the topic."""
    async with running_produce_server() as (server, connect):

        async def find_cancelled(*_: Any, **__: Any) -> Any:
            shared: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            shared.cancel()
            return await shared

        monkeypatch.setattr(server.topics, "find", find_cancelled)
        client = connect()
        await client.send(OpenProducer(producer_id=1, topic="t"))
        assert await client.code(1) == ErrorCode.SERVICE_NOT_READY
        assert "was interrupted" in caplog.text


async def test_internal_error_of_one_opening_ends_no_other_producer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_produce_server() as (server, connect):
        find = server.topics.find

        async def find_or_fail(name: TopicName, *others: Any, **options: Any) -> Any:
            if name.local_name == "bad":
                raise KeyError("a bug")
            return await find(name, *others, **options)

        monkeypatch.setattr(server.topics, "find", find_or_fail)
        client = connect()
        await client.open(1, "p")
        await client.send(OpenProducer(producer_id=2, topic="bad"))
        assert await client.code(2) == ErrorCode.UNKNOWN_ERROR
        assert "a bug" in caplog.text
        await client.send((1, 0, [entry(0, producer="p")]))
        await until(lambda: (1, 0) in client.receipts, "the other producer goes on")


async def test_invalid_entry_is_refused_alone_with_both_sizes() -> None:
    """MSG-2: the broker refuses entries that are too large, and names both sizes; later ones are stored."""
    too_large = _forged(MAX_MESSAGE_BYTES + 1)
    much_metadata = _forged(1, metadata_bytes=MAX_METADATA_BYTES + 1)
    damaged = bytearray(entry(3))
    damaged[-1] ^= 1
    bad = {
        1: (too_large, ErrorCode.MESSAGE_TOO_BIG, [str(MAX_MESSAGE_BYTES + 1), str(MAX_MESSAGE_BYTES)]),
        2: (much_metadata, ErrorCode.MESSAGE_TOO_BIG, [str(MAX_METADATA_BYTES)]),
        3: (bytes(damaged), ErrorCode.CHECKSUM_ERROR, []),
        4: (b"nonsense", ErrorCode.INVALID_ARGUMENT, []),
        5: (b"", ErrorCode.INVALID_ARGUMENT, []),
        6: (entry(6, producer="another"), ErrorCode.INVALID_ARGUMENT, ["another"]),
        7: (entry(7, num_messages_in_batch=0), ErrorCode.INVALID_ARGUMENT, ["0"]),
        8: (entry(8, num_messages_in_batch=2**31 - 1), ErrorCode.INVALID_ARGUMENT, [str(2**31 - 1)]),
        9: (entry(9, num_chunks_from_msg=2, chunk_id=0), ErrorCode.INVALID_ARGUMENT, ["uuid"]),
        10: (entry(10, deliver_at_time=5), ErrorCode.UNSUPPORTED, ["delayed delivery"]),
        11: (entry(2**63), ErrorCode.INVALID_ARGUMENT, [str(2**63)]),
        12: (entry(12, marker_type=1), ErrorCode.NOT_ALLOWED, []),
        13: (entry(13, txnid_most_bits=1), ErrorCode.UNSUPPORTED, ["transaction"]),
        14: (b"\x0e\x02\0\0\0\0" + entry(14), ErrorCode.INVALID_ARGUMENT, []),
        15: (entry(15, bytes(17), num_messages_in_batch=3), ErrorCode.INVALID_ARGUMENT, ["18", "17"]),
        16: (entry(16, num_messages_in_batch=300_000), ErrorCode.INVALID_ARGUMENT, ["300000"]),
        17: (compressed(LZ4, 10, 2551), ErrorCode.INVALID_ARGUMENT, ["2551", "2550"]),
        18: (compressed(ZSTD, 10, 6 * 100 - 1), ErrorCode.INVALID_ARGUMENT, ["600", "599"]),
        19: (compressed(ZSTD, 5000, 2**27 + 1), ErrorCode.INVALID_ARGUMENT, [str(2**27)]),
        20: (compressed(77, 10, 600), ErrorCode.UNSUPPORTED, ["77"]),
        21: (entry(21, num_chunks_from_msg=2, chunk_id=2, uuid="u"), ErrorCode.INVALID_ARGUMENT, ["chunk 2 of 2"]),
        22: (entry(22, num_chunks_from_msg=2, chunk_id=-1, uuid="u"), ErrorCode.INVALID_ARGUMENT, ["chunk -1 of 2"]),
        23: (
            entry(23, bytes(6), num_chunks_from_msg=2, chunk_id=0, uuid="u", num_messages_in_batch=1),
            ErrorCode.INVALID_ARGUMENT,
            ["batch"],
        ),
    }

    async with running_produce_server() as (server, connect):
        client = connect()
        await client.open(1)
        number = 0
        good = []
        for one, _, _ in bad.values():
            behind = entry(number)
            good.append(behind)
            await client.send((1, number, [one, behind]))
            number += 2
        await until(lambda: len(client.receipts) == len(bad) == len(client.refused), "all are decided")
        assert server.log().stored == good
        for refused, (_, code, named) in zip(client.refused, bad.values(), strict=True):
            assert refused.problem.code == code, refused
            assert all(one in refused.problem.text for one in named), refused
        assert [one.number for one in client.refused] == list(range(0, number, 2))
        assert server.storage.opened[0].counters.refused_entries == len(bad)
        assert server.budget.used_bytes == 0


def compressed(compression: int, payload_bytes: int, uncompressed_bytes: int) -> bytes:
    """A batch of a hundred messages, as its metadata say."""
    kinds: dict[str, Any] = {"compression": compression, "uncompressed_size": uncompressed_bytes}
    return entry(1, bytes(payload_bytes), num_messages_in_batch=100, **kinds)


async def test_batches_that_compress_well_are_stored() -> None:
    """PRD-3: a payload that the broker does not decode is refused only if its declared size is impossible."""

    async with running_produce_server() as (_, connect):
        client = connect()
        await client.open(1)
        shared = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        batches = [encode_batch(Messages([b""] * 5000), shared, kind) for kind in (NONE, LZ4, ZLIB, ZSTD, SNAPPY)]
        await client.send((1, 0, batches))
        await until(lambda: len(client.receipts) == len(batches), "all are stored")
        assert not client.refused


def _forged(payload_bytes: int, metadata_bytes: int = 0) -> bytes:
    """An entry that the encoder would not make, with a good checksum."""
    head = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, uuid="u" * metadata_bytes)
    data = head.SerializeToString()
    covered = len(data).to_bytes(4, "big") + data + bytes(payload_bytes)
    return b"\x0e\x01" + crc32c(covered).to_bytes(4, "big") + covered


async def test_the_largest_message_is_stored() -> None:
    """MSG-2: exactly the largest payload is taken."""

    async with running_produce_server() as (_, connect):
        client = connect()
        await client.open(1)
        await client.send((1, 0, [entry(0, bytes(MAX_MESSAGE_BYTES))]))
        await until(lambda: len(client.receipts) == 1, "it is stored")
        assert not client.refused


async def test_a_broker_may_allow_less() -> None:
    """MSG-2: `max_message_size`."""

    async with running_produce_server(max_message_size=1000) as (_, connect):
        client = connect()
        assert (await client.open(1)).max_message_bytes == 1000
        await client.send((1, 0, [entry(0, bytes(1001)), entry(1, bytes(1000))]))
        await until(lambda: len(client.receipts) == len(client.refused) == 1, "both are decided")
        assert client.refused[0].problem.code == ErrorCode.MESSAGE_TOO_BIG
        assert "1001" in client.refused[0].problem.text
        assert "1000" in client.refused[0].problem.text


async def test_a_name_has_one_producer_at_a_time() -> None:
    """PRD-11: names are unique per topic, and the broker makes one where none is given."""

    async with running_produce_server() as (_, connect):
        one, other = connect(), connect()
        await one.open(1, "p", instance=b"a")
        await other.send(OpenProducer(producer_id=1, topic="t", producer_name="p", instance=b"b"))
        assert await other.code(1) == ErrorCode.PRODUCER_BUSY
        names = {(await other.open(number, "")).producer_name for number in range(2, 12)}
        assert len(names) == 10
        assert "p" not in names
        await one.send(CloseProducer(producer_id=1))
        await until(lambda: 1 in one.ended, "it is closed")
        assert not one.ended[1].HasField("problem")
        await other.open(20, "p", instance=b"b")


async def test_reconnect_fences_stale_producer_and_drops_its_unread_entries() -> None:
    """CHK-33, PRD-9: in a higher epoch; what was appended stays ahead of what the newcomer sends, which knows of it."""

    async with running_produce_server() as (server, connect):
        before, after = connect(), connect()
        await before.open(1, "p", instance=b"a", connection_epoch=0)
        server.log().prompt = False
        await before.send((1, 0, [entry(0), entry(1)]))
        await until(lambda: len(server.log().waiting) == 2, "the topic has taken them")
        await after.send(OpenProducer(producer_id=9, topic="t", producer_name="p", instance=b"a", connection_epoch=1))
        assert await before.code(1) == ErrorCode.PRODUCER_FENCED
        await before.send((1, 2, [entry(2)]))
        await before.send(OpenProducer(producer_id=2, topic="t", producer_name="x"))
        await until(lambda: 2 in before.opened, "the old stream was read past it")
        # Not before it is known what became of what the former self had sent.
        assert 9 not in after.opened
        server.log().decide()
        await until(lambda: 9 in after.opened, "the newcomer is open")
        assert after.opened[9].last_sequence_id == 1
        server.log().prompt = True
        await after.send((9, 0, [entry(1), entry(2)]))
        await until(lambda: len(after.receipts) == 2, "they are stored")
        assert server.log().stored == [entry(0), entry(1), entry(1), entry(2)]
        assert not before.receipts
        # The old stream may be read only now; its epoch is older.
        late = connect()
        await late.send(OpenProducer(producer_id=1, topic="t", producer_name="p", instance=b"a", connection_epoch=0))
        assert await late.code(1) == ErrorCode.PRODUCER_FENCED
        await after.send(CloseProducer(producer_id=9))
        await until(lambda: 9 in after.ended, "it is closed")
        await late.send(OpenProducer(producer_id=2, topic="t", producer_name="p", instance=b"a", connection_epoch=0))
        assert await late.code(2) == ErrorCode.PRODUCER_FENCED


async def test_broken_stream_closes_its_producers_and_stores_sent_entries() -> None:
    """PRD-9: the name is free at once; who takes it waits for what is pending, and learns how far it came."""

    async with running_produce_server() as (server, connect):
        before, after = connect(), connect()
        await before.open(1, "p", instance=b"a")
        server.log().prompt = False
        await before.send((1, 0, [entry(4, bytes(18), num_messages_in_batch=3, highest_sequence_id=6)]))
        await until(lambda: len(server.log().waiting) == 1, "the topic has taken it")
        before.stream.cancel()
        await until(lambda: not server.storage.opened[0].producers.connected(), "its producer has left")
        await after.send(OpenProducer(producer_id=1, topic="t", producer_name="p", instance=b"another"))
        await until(lambda: bool(server.storage.opened[0].producers.connected()), "the other one waits")
        assert not after.opened
        server.log().decide()
        await until(lambda: 1 in after.opened, "it is open")
        assert after.opened[1].last_sequence_id == 6
        assert server.budget.used_bytes == 0


async def test_close_is_answered_after_entries_sent_before_it() -> None:
    """All in one message: opened, stored, receipted, closed."""

    async with running_produce_server() as (server, connect):
        client = connect()
        server.storage.gate.clear()
        await client.send(
            OpenProducer(producer_id=1, topic="t", producer_name="p"),
            (1, 0, [entry(0), entry(1)]),
            CloseProducer(producer_id=1),
        )
        await until(lambda: server.storage.opening == 1, "it is being opened")
        assert server.budget.used_bytes > 0
        server.storage.gate.set()
        await until(lambda: 1 in client.ended, "it is closed")
        assert len(client.receipts) == 2
        await client.send((1, 2, [entry(2)]))  # passed over
        await client.stream.finish()
        await until(lambda: client.over, "the stream ends")
        assert client.error is None
        assert len(server.log().stored) == 2
        assert server.budget.used_bytes == 0


async def test_unloaded_topic_ends_its_producers_and_is_reopened() -> None:
    """OWN-2: entries without a receipt are unknown; the next producer reopens the topic."""

    async with running_produce_server() as (server, connect):
        client = connect()
        await client.open(1)
        server.log().prompt = False
        await client.send((1, 0, [entry(0)]))
        await until(lambda: len(server.log().waiting) == 1, "the topic has taken it")
        server.log().on_lost(TopicUnloaded("somebody else has it"))
        assert await client.code(1) == ErrorCode.SERVICE_NOT_READY
        server.log().decide(error=TopicUnloaded("somebody else has it"))
        await client.open(2, "p")
        assert len(server.storage.opened) == 2
        assert server.log(0).abandoned
        assert not client.receipts
        assert server.budget.used_bytes == 0


async def test_a_log_that_fails_ends_the_producer_and_nothing_is_stored_behind_a_gap() -> None:
    """PRD-10: what comes behind an entry that was not stored is not stored either."""

    async with running_produce_server() as (server, connect):
        client = connect()
        await client.open(1)
        server.log().prompt = False
        await client.send((1, 0, [entry(0), entry(1)]))
        await until(lambda: len(server.log().waiting) == 2, "the topic has taken them")
        server.log().decide(1)
        server.log().decide(1, BrokerError(ErrorCode.TOO_MANY_REQUESTS, "later"))
        server.log().prompt = True
        await client.send((1, 2, [entry(2)]))
        assert await client.code(1) == ErrorCode.TOO_MANY_REQUESTS
        await client.open(2, "q")
        assert server.log().stored == [entry(0)]
        assert client.receipts == {(1, 0): (7, 0)}


async def test_another_incarnation_is_refused() -> None:
    """TOP-7, CHK-57: deleted and made again under one name, it is another topic: nothing is stored in it by mistake,
    and no producer that knew the old one makes a new one."""

    async with running_produce_server() as (server, connect):
        client = connect()
        known = (await client.open(1)).incarnation
        await server.topics.delete(NAME, force=True)
        assert await client.code(1) == ErrorCode.TOPIC_NOT_FOUND
        again = OpenProducer(producer_id=2, topic="t", producer_name="p", incarnation=known)
        await client.send(again)
        assert await client.code(2) == ErrorCode.TOPIC_NOT_FOUND
        assert (await client.open(3)).incarnation != known
        again.producer_id = 4
        await client.send(again)
        assert await client.code(4) == ErrorCode.INCARNATION_CHANGED


@pytest.mark.parametrize("what", ["nonsense", "a gap", "an id twice", "bad runs"])
async def test_protocol_violation_ends_the_stream(what: str) -> None:
    async with running_produce_server() as (server, connect):
        client = connect()
        await client.open(1)
        if what == "nonsense":
            await client.stream.send(b"\xff\xff\xff")
        elif what == "a gap":
            await client.send((1, 1, [entry(1)]))
        elif what == "an id twice":
            await client.send(OpenProducer(producer_id=1, topic="t", producer_name="q"))
        else:
            frame = Frame(runs=[Run(channel=1, first=0, count=2)], entries=[entry(0)])
            await client.stream.send(ProduceRequest(frame=frame).SerializeToString())
        await until(lambda: client.over, "the stream is ended")
        assert isinstance(client.error, Rejected)
        await until(lambda: not server.storage.opened[0].producers.connected(), "its producers have left")
        assert not server.log().stored
        assert server.budget.used_bytes == 0


async def test_graceful_close_answers_accepted_entries_first() -> None:
    """Nothing needs to be sent again that was taken before: its receipt comes, then the end."""

    async with running_produce_server() as (server, connect):
        client = connect()
        await client.open(1)
        log = server.log()
        log.prompt = False
        await client.send((1, 0, [entry(0)]))
        await until(lambda: len(log.waiting) == 1, "the topic has taken it")
        closing = asyncio.create_task(server.topics.close(TopicUnloaded("the broker ends")))
        await until(lambda: server.storage.opened[0].ended is not None, "it is ending")
        await client.send((1, 1, [entry(1)]))
        await client.send(OpenProducer(producer_id=2, topic="t", producer_name="late"))
        assert await client.code(2) == ErrorCode.SERVICE_NOT_READY
        log.decide()
        await within(closing, "all topics are closed")
        assert await client.code(1) == ErrorCode.SERVICE_NOT_READY
        assert client.receipts == {(1, 0): (7, 0)}
        assert log.stored == [entry(0)]
        assert log.closed
        server.sessions[0].end()
        await until(lambda: client.over, "the stream ends")
        assert client.error is None
