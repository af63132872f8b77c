"""Deduplication through both listeners: what is stored, and what producers are answered."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from magnetar_protos.entry_pb2 import CompressionType, EncryptionKeys, MessageMetadata, SingleMessageMetadata
from magnetar_wire.compression import compress
from magnetar_wire.entry import decode_entry, encode_entry
from tests.guide import PROJECT
from tests.produce_client import entry
from tests.running import until
from tests.unit.broker.deduplication_scene import DUPLICATE, WIRES, batch, chunk, running
from tests.vectors.capture_java_batches import MESSAGES, RECORD

_RECORD = PROJECT / "tests/vectors/pulsar_client.json"
pytestmark = pytest.mark.parametrize("wire", WIRES)


def single(*sequence_ids: int, producer: str = "p") -> list[bytes]:
    return [entry(number, b"%d" % number, producer) for number in sequence_ids]


async def test_each_sequence_id_is_stored_once_with_gaps_and_over_reconnects(wire: Any) -> None:
    """DUP-1, PRD-7: a duplicate's result is (-1,-1), in its turn, whether its first copy is stored or in flight."""
    async with running(wire) as on:
        producer = await on.producer()
        assert producer.last_sequence_id == -1
        results = await producer.send(*single(0, 1, 1, 5, 3, 5, 6))
        assert [one == DUPLICATE for one in results] == [False, False, True, False, True, True, False]
        assert await producer.send(*single(6, 2)) == [DUPLICATE, DUPLICATE]
        other = await on.producer("q")
        assert DUPLICATE not in await other.send(*single(0, 5, producer="q"))
        await producer.leave()
        producer = await on.producer()
        assert producer.last_sequence_id == 6
        assert [one == DUPLICATE for one in await producer.send(*single(5, 6, 7))] == [True, True, False]
        assert await on.stored() == [b"0", b"1", b"5", b"6", b"0", b"5", b"7"]


@pytest.mark.parametrize("crashes", [True, False])
async def test_stored_ids_are_recovered_from_snapshot_and_replay(wire: Any, crashes: bool) -> None:
    """DUP-1, DUP-2, PRD-7: after a crash of the topic's broker, and after an unload."""
    async with running(wire, broker_deduplication_entries_interval=10) as on:
        for round_ in range(4):
            producer = await on.producer()
            first = round_ * 14
            assert producer.last_sequence_id == first - 1
            results = await producer.send(*single(*range(max(0, first - 20), first + 14)))
            assert [one == DUPLICATE for one in results] == [True] * min(20, first) + [False] * 14
            if round_:
                assert on.snapshot_position().entry_id >= 0 or on.snapshot_position().ledger_id > 0
            await (on.crash() if crashes else on.unload())
        assert await on.stored() == [b"%d" % number for number in range(56)]


async def test_batches_are_compared_by_lowest_and_highest_id_and_message_by_message(wire: Any) -> None:
    """DUP-2, CHK-32: a batch that is partly a duplicate is stored without the messages that are stored already."""
    async with running(wire) as on:
        producer = await on.producer()
        for compression in (CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD):
            first = producer.last_sequence_id + 1 + int(compression) * 100
            ids = [first, first + 1, first + 4]
            assert DUPLICATE not in await producer.send(batch(*ids, compression=compression))
            again, partly, new = await producer.send(
                batch(*ids[1:], compression=compression),
                batch(*ids[1:], first + 6, first + 9, compression=compression),
                batch(first + 10, first + 11, compression=compression),
            )
            assert again == DUPLICATE
            assert DUPLICATE not in (partly, new)
            assert await on.stored() == [
                b"%d" % (start + number)
                for start in range(0, first + 1, 100)
                if start in (0, 100, 300)
                for number in (0, 1, 4, 6, 9, 10, 11)
            ]
        await on.crash()
        producer = await on.producer()
        assert await producer.send(batch(306, 311)) == [DUPLICATE]


def lying(*sequence_ids: int, **fields: Any) -> bytes:
    """A batch of these messages that declares other ids."""
    decoded = decode_entry(batch(*sequence_ids))
    for name, value in fields.items():
        setattr(decoded.metadata, name, value)
    return encode_entry(decoded.metadata, decoded.payload)


async def test_partly_duplicate_batches_that_can_not_be_split_end_their_producer(wire: Any) -> None:
    """DUP-2, CHK-49: encrypted ones, and those that lie about their ids. Nothing of them is stored or answered as
    stored, nor anything behind them, so messages that are sent again, in order, are stored."""
    async with running(wire) as on:
        producer = await on.producer()
        await producer.send(batch(0, 1, 2))
        keys = [EncryptionKeys(key="k", value=b"v")]
        bad = [
            batch(2, 3, encryption_keys=keys),
            lying(2, 3, highest_sequence_id=9),
            lying(1, 3, sequence_id=2),
            lying(0, 1, 2, highest_sequence_id=2**60),
            lying(2, 5, 4, highest_sequence_id=5),
            lying(2, 3, num_messages_in_batch=1),
            encode_entry(decode_entry(lying(2, 3)).metadata, b"\xff" * 30),
        ]
        for one in bad:
            producer.send_nowait(batch(0, 2, encryption_keys=keys), one, batch(4, 5))
            assert await producer.results(2) == [DUPLICATE, "ended"]
            await producer.leave()
            producer = await on.producer()
        assert DUPLICATE not in await producer.send(batch(3), batch(4, 5))
        assert await on.stored() == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("entries", [single(1, 2, 3), [chunk(1, number, 3) for number in range(3)]])
async def test_entry_that_its_client_resends_after_a_refusal_ends_the_producer(wire: Any, entries: list[bytes]) -> None:
    """DUP-1, CHK-32: it arrived damaged. Else entries behind it would be stored, and it would be a duplicate."""
    async with running(wire) as on:
        producer = await on.producer()
        damaged = entries[1][:-1] + bytes([entries[1][-1] ^ 1])
        producer.send_nowait(*single(0), entries[0], damaged, entries[2])
        results = await producer.results(4 if wire is WIRES[1] else 3)
        assert not any(isinstance(one, str) for one in results[:2])
        assert "checksum" in str(results[2])
        await producer.leave()
        producer = await on.producer()
        assert [one == DUPLICATE for one in await producer.send(*entries)] == [True, False, False]
        assert len(await on.stored()) == 4


async def test_splitting_batches_costs_a_bounded_time(wire: Any) -> None:
    """CHK-49: a few hundred bytes decompress to very many messages. A batch has a limit, and an opening has one."""
    async with running(wire) as on:
        producer = await on.producer()
        await producer.send(*single(0))
        producer.send_nowait(empty_messages(10_001, 0))
        assert await producer.results(1) == ["ended"]
        await producer.leave()
        producer = await on.producer()
        many = [empty_messages(8_000, number * 7_999) for number in range(5)]
        producer.send_nowait(*many)
        results = await producer.results(4)
        assert DUPLICATE not in results
        assert [one == "ended" for one in results] == [False, False, False, True]
        await producer.leave()
        producer = await on.producer()
        assert producer.last_sequence_id == 3 * 7_999
        assert [one == DUPLICATE for one in await producer.send(*many[2:4])] == [True, False]


def empty_messages(count: int, first: int) -> bytes:
    one = SingleMessageMetadata(payload_size=0).SerializeToString()
    payload = (len(one).to_bytes(4, "big") + one) * count
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=first,
        highest_sequence_id=first + count - 1,
        publish_time=1,
        num_messages_in_batch=count,
        compression=CompressionType.ZSTD,
        uncompressed_size=len(payload),
    )
    return encode_entry(metadata, compress(payload, CompressionType.ZSTD))


async def test_batch_without_highest_id_is_compared_by_its_own_id_alone(wire: Any) -> None:
    """DUP-2, CHK-65: as pulsar-client sends key-based batches: each has its lowest id, and the ids interleave."""
    async with running(wire) as on:
        producer = await on.producer()
        by_key = [lying(0, 3, 6), lying(1, 4, 7), lying(2, 5, 8)]
        for one in by_key:
            decoded = decode_entry(one)
            decoded.metadata.ClearField("highest_sequence_id")
            decoded.metadata.partition_key = "k"
            by_key[by_key.index(one)] = encode_entry(decoded.metadata, decoded.payload)
        assert DUPLICATE not in await producer.send(*by_key[:2])
        await on.crash()
        producer = await on.producer()
        assert producer.last_sequence_id == 1
        results = await producer.send(*by_key)
        assert results[:2] == [DUPLICATE, DUPLICATE]
        assert results[2] != DUPLICATE
        assert sorted(await on.stored()) == [b"%d" % number for number in range(9)]


async def test_batches_by_key_of_the_java_client_are_stored_once(wire: Any) -> None:
    """DUP-2, CHK-65, PRD-5: each names its highest id only, and the ids of its messages interleave with others'."""
    entries = [base64.b64decode(one) for one in json.loads(RECORD.read_text())]
    name = decode_entry(entries[0]).metadata.producer_name
    async with running(wire) as on:
        producer = await on.producer(name)
        assert DUPLICATE not in await producer.send(*entries[:4])
        await on.crash()
        producer = await on.producer(name)
        assert producer.last_sequence_id == 13
        results = await producer.send(*entries)
        assert [one == DUPLICATE for one in results] == [True] * 4 + [False] * 2
        assert sorted(await on.stored()) == sorted(message["content"] for message in MESSAGES)


@pytest.mark.parametrize("case", ["batch-by-key", "batch-by-key-compressed", "batch-numbered", "batch-NONE", "chunked"])
async def test_entries_as_the_stock_client_sends_them_are_stored_once(wire: Any, case: str) -> None:
    """DUP-2, PRD-8, CHK-65: what pulsar-client 3.13 has sent, key-based batches, batches of given ids and chunks among
    it, is stored as a whole, and nothing of it when it is resent."""
    entries = [base64.b64decode(one["entry"]) for one in json.loads(_RECORD.read_text())["cases"][case]["sent"]]
    name = decode_entry(entries[0]).metadata.producer_name
    async with running(wire) as on:
        producer = await on.producer(name)
        assert DUPLICATE not in await producer.send(*entries)
        stored = await on.stored()
        assert await producer.send(*entries) == [DUPLICATE] * len(entries)
        await on.crash()
        producer = await on.producer(name)
        assert await producer.send(*entries) == [DUPLICATE] * len(entries)
        assert await on.stored() == stored


async def test_chunks_are_compared_by_sequence_id_and_number(wire: Any) -> None:
    """DUP-2, PRD-8, CHK-32: chunks of one message have one id, and it is stored with the last chunk."""
    async with running(wire) as on:
        producer = await on.producer()
        results = await producer.send(chunk(0, 0, 3), chunk(0, 1, 3), chunk(0, 1, 3))
        assert [one == DUPLICATE for one in results] == [False, False, True]
        await on.crash()
        producer = await on.producer()
        assert producer.last_sequence_id == -1
        # It is resumed: its stored chunks are duplicates.
        results = await producer.send(*(chunk(0, number, 3) for number in range(3)), chunk(0, 2, 3))
        assert [one == DUPLICATE for one in results] == [True, True, False, True]
        # The next one is cut off, and sent again as another group.
        await producer.send(chunk(1, 0, 2, "v"))
        await on.crash()
        producer = await on.producer()
        assert producer.last_sequence_id == 0
        results = await producer.send(chunk(0, 0, 3), chunk(1, 0, 3, "w"), chunk(1, 1, 3, "w"), chunk(1, 2, 3, "w"))
        assert [one == DUPLICATE for one in results] == [True, False, False, False]
        assert await producer.send(chunk(1, 0, 2, "v"), *single(1)) == [DUPLICATE, DUPLICATE]
        assert await on.stored() == [b"u 0", b"u 1", b"u 2", b"v 0", b"w 0", b"w 1", b"w 2"]


async def test_duplicates_of_entries_in_flight_get_their_result_after_them(wire: Any) -> None:
    """DUP-1: nothing is answered before the first copy is stored."""
    async with running(wire) as on:
        producer = await on.producer()
        await producer.send(*single(0))
        for bookie in on.scene.bookies:
            bookie.hold()
        producer.send_nowait(*single(1, 2, 1, 0, 2, 3))
        topic = on.topic()
        await until(lambda: topic.log.stats().pending_appends == 3, "three are in flight")
        assert topic.counters.duplicate_entries == 3
        for bookie in on.scene.bookies:
            bookie.resume()
        results = await producer.results(6)
        assert [one == DUPLICATE for one in results] == [False, False, True, True, True, False]
        assert await on.stored() == [b"0", b"1", b"2", b"3"]


async def test_entries_whose_outcome_is_unknown_are_compared_with_the_log(wire: Any) -> None:
    """DUP-1, CHK-32: what is received and what is stored are two numbers: an entry that was received, and is lost with
    its topic's broker, is stored when it is resent; one that was stored without a result is not."""
    async with running(wire) as on:
        producer = await on.producer()
        await producer.send(*single(0))
        one, other = on.scene.bookies
        other.hold()
        producer.send_nowait(*single(1, 2))
        await until(lambda: on.topic().log.stats().pending_appends == 2, "two are in flight")
        await on.crash()
        assert await producer.results(1) == ["ended"]
        stored = {b"0", b"1", b"2"} if one.ledgers else set()
        other.resume()
        producer = await on.producer()
        assert stored
        results = await producer.send(*single(0, 1, 2, 3))
        assert results[0] == DUPLICATE
        assert results[3] != DUPLICATE
        assert await on.stored() == [b"0", b"1", b"2", b"3"]


async def test_failed_adds_are_resent_by_the_log_and_duplicates_wait_for_them(wire: Any) -> None:
    """DUP-1, CHK-64: a ledger fails with two adds in flight, and so do the next ones, to which they are resent; copies
    come before that and while it lasts. Each message is stored once, in order, and nothing is answered before."""
    async with running(wire) as on:
        producer = await on.producer()
        [first] = await producer.send(*single(0))
        for bookie in on.scene.bookies:
            bookie.failing.add("add")
        producer.send_nowait(*single(1, 2, 1))
        topic, adds = on.topic(), on.scene.bookies[0].calls
        await until(lambda: topic.log.waiting_for != "", "a ledger has failed")
        producer.send_nowait(*single(2, 1, 3, 0))
        failed = adds.count(("add", None))
        await until(lambda: adds.count(("add", None)) > failed, "the next one has failed, too")
        assert topic.counters.duplicate_entries == 4
        assert await on.stored() == [b"0"]
        for bookie in on.scene.bookies:
            bookie.failing.clear()
        results = await producer.results(7)
        assert [one == DUPLICATE for one in results] == [False, False, True, True, True, False, True]
        positions = [one for one in (first, *results) if not isinstance(one, str) and one != DUPLICATE]
        assert positions == sorted(set(positions))
        assert len(positions) == 4
        assert await on.stored() == [b"0", b"1", b"2", b"3"]
