"""Messages whose payload can't be decoded: the option `unreadable`, and what is logged."""

from __future__ import annotations

import logging
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any, Final

import cramjam
import lz4.block
import pytest
import zstandard

from magnetar_protos import entry_pb2
from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_spark.arrow import EntriesToArrow, ProblemCounts
from magnetar_spark.errors import TooManyChunks, UnreadableEntry
from magnetar_spark.options.columns import COLUMNS
from magnetar_spark.options.decoding_options import DecodingOptions, Unreadable
from magnetar_wire.batch import Messages, encode_batch, encode_message
from magnetar_wire.chunks import encode_chunks
from magnetar_wire.entry import add_broker_metadata, encode_entry

TOPIC: Final = "persistent://public/default/t"
LIMIT: Final = 1_000
SKIP, NULL = DecodingOptions(Unreadable.SKIP, LIMIT), DecodingOptions(Unreadable.NULL, LIMIT)
FAIL: Final = DecodingOptions(max_decompressed_bytes=LIMIT)
BATCH: Final = 3
OF_METADATA: Final = ("topic", "partition", "message_id", "publish_time", "broker_time", "index", "producer_name")

Row = dict[str, Any]


def shared(**more: Any) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=5, publish_time=1_700_000_000_000, **more)


def encrypted(metadata: MessageMetadata, payload: bytes) -> tuple[MessageMetadata, bytes]:
    metadata.encryption_keys.add(key="k1", value=b"x")
    return metadata, payload


def too_large(metadata: MessageMetadata, payload: bytes) -> tuple[MessageMetadata, bytes]:
    metadata.compression, metadata.uncompressed_size = entry_pb2.ZSTD, LIMIT + 1
    return metadata, zstandard.ZstdCompressor().compress(bytes(LIMIT + 1))


def corrupt(metadata: MessageMetadata, payload: bytes) -> tuple[MessageMetadata, bytes]:
    metadata.compression, metadata.uncompressed_size = entry_pb2.LZ4, LIMIT
    return metadata, b"no LZ4 block"


def unknown_codec(metadata: MessageMetadata, payload: bytes) -> tuple[MessageMetadata, bytes]:
    metadata.compression, metadata.uncompressed_size = 9, 7  # type: ignore[assignment]
    return metadata, payload


KINDS: Final[dict[Callable[[MessageMetadata, bytes], tuple[MessageMetadata, bytes]], str]] = {
    encrypted: r"encrypted with the keys \['k1'\], and encryption is not supported",
    too_large: "has 1001 bytes uncompressed, .*raise the option maxDecompressedBytes",
    corrupt: "is not a valid LZ4 block of 1000 bytes",
    unknown_codec: "compression 9 is unknown",
}


def single(kind: Callable[[MessageMetadata, bytes], tuple[MessageMetadata, bytes]]) -> bytes:
    metadata = shared(partition_key="key", event_time=1_700_000_000_001)
    metadata.properties.add(key="n", value="1")
    return encode_entry(*kind(metadata, b"secret"))


def batch(kind: Callable[[MessageMetadata, bytes], tuple[MessageMetadata, bytes]]) -> bytes:
    return encode_entry(*kind(shared(num_messages_in_batch=BATCH), b"\0\0\0\2\x18\0" * BATCH))


def good(number: int = 0) -> bytes:
    return encode_message(Messages([b"good %d" % number]), shared())


def in_log(entries: list[bytes], messages: list[int]) -> list[bytes]:
    """As the broker stores them, with the index of each entry's last message."""
    return [
        add_broker_metadata(entry, 1_700_000_000_002, sum(messages[: at + 1]) - 1) for at, entry in enumerate(entries)
    ]


def read(
    log: list[bytes],
    decoding: DecodingOptions,
    columns: tuple[str, ...] = COLUMNS,
    problems: ProblemCounts | None = None,
    *,
    first: int = 0,
    skip: int = 0,
    stop: int = 0,
) -> list[Row]:
    earlier = [(7, at, log[at]) for at in reversed(range(first))]
    converter = EntriesToArrow(columns, TOPIC, -1, lambda: earlier, decoding=decoding, problems=problems)
    batches = [*converter.convert_entries(7, first, log[first:], skip, stop), *converter.finish()]
    for each in batches:
        each.validate(full=True)
    return [row for each in batches for row in each.to_pylist()]


def ids(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row["message_id"]["entry_id"], row["message_id"]["batch_index"]) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_that_can_not_be_decoded(kind: Callable[..., Any]) -> None:
    """SPK-1: it ends the query with an error that names the ways out, is skipped, or is a row without a value."""
    log = in_log([good(0), single(kind), good(2)], [1, 1, 1])
    with pytest.raises(UnreadableEntry, match=rf"entry 7:1 of .*{KINDS[kind]}.*unreadable=skip .*unreadable=null"):
        read(log, FAIL)
    assert ids(read(log, SKIP)) == [(0, -1), (2, -1)]
    rows = read(log, NULL)
    assert [row["value"] for row in rows] == [b"good 0", None, b"good 2"]
    assert [row["index"] for row in rows] == [0, 1, 2]
    null = rows[1]
    assert (null["key"], null["properties"], null["sequence_id"], null["producer_name"]) == (
        b"key",
        [("n", "1")],
        5,
        "p",
    )
    assert null["event_time"].timestamp() == 1_700_000_000.001


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_can_not_be_decoded(kind: Callable[..., Any]) -> None:
    """SPK-1: as many rows as it has messages, with their ids and indexes; null what stands in the payload."""
    log = in_log([good(0), batch(kind), good(2)], [1, BATCH, 1])
    with pytest.raises(UnreadableEntry, match=rf"entry 7:1 of .*{KINDS[kind]}"):
        read(log, FAIL)
    assert ids(read(log, SKIP)) == [(0, -1), (2, -1)]
    rows = read(log, NULL)
    assert ids(rows) == [(0, -1), (1, 0), (1, 1), (1, 2), (2, -1)]
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    for row in rows[1:4]:
        assert [row[name] for name in ("value", "key", "properties", "event_time", "sequence_id")] == [None] * 5
        assert row["publish_time"].timestamp() == 1_700_000_000
    assert rows[0]["properties"] == []


def test_a_slice_that_begins_or_ends_within_a_batch() -> None:
    """SPK-5: what is not in the slice is neither a row nor counted, nor does it end the query."""
    problems = ProblemCounts("t")
    log = in_log([batch(encrypted)], [BATCH])
    assert ids(read(log, NULL, problems=problems, skip=1)) == [(0, 1), (0, 2)]
    assert ids(read(log, NULL, problems=problems, stop=1)) == [(0, 0)]
    assert [count for count, _ in problems.counts.values()] == [3]
    assert read(log, FAIL, skip=BATCH) == []
    assert read(in_log([single(encrypted), good(1)], [1, 1]), FAIL, ("message_id",), skip=1)[0]["message_id"]
    assert ids(read(in_log([single(corrupt), good(1)], [1, 1]), FAIL, skip=1)) == [(1, -1)]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_need_no_payload_never_fail(kind: Callable[..., Any]) -> None:
    """SPK-1: with any value of `unreadable`, and none of these rows is counted"""
    problems = ProblemCounts("t")
    log = in_log([batch(kind), single(kind)], [BATCH, 1])
    for decoding in (FAIL, SKIP, NULL):
        rows = read(log, decoding, OF_METADATA, problems)
        assert ids(rows) == [(0, 0), (0, 1), (0, 2), (1, -1)]
        assert [row["index"] for row in rows] == [0, 1, 2, 3]
        (row,) = read(log[1:], decoding, tuple(name for name in COLUMNS if name != "value"), problems)
        assert (row["key"], row["properties"]) == (b"key", [("n", "1")])
    assert not problems.counts
    for name in ("key", "properties", "event_time", "sequence_id"):
        with pytest.raises(UnreadableEntry, match="unreadable=null"):
            read(log, FAIL, (name, "message_id"))


def test_compacted_batch_yields_rows_only_for_retained_messages() -> None:
    metadata = shared(num_messages_in_batch=9, compacted_batch_indexes=[0, 3, 8])
    log = in_log([encode_entry(*encrypted(metadata, b"secret"))], [9])
    rows = read(log, NULL)
    assert ids(rows) == [(0, 0), (0, 3), (0, 8)]
    assert [row["index"] for row in rows] == [0, 3, 8]


@pytest.mark.parametrize(
    "of_batch",
    [
        {"num_messages_in_batch": 0},
        {"num_messages_in_batch": -1},
        {"num_messages_in_batch": 2**31 - 1},
        {"num_messages_in_batch": 3, "compacted_batch_indexes": [1, 1]},
        {"num_messages_in_batch": 3, "compacted_batch_indexes": [-1, 1]},
        {"num_messages_in_batch": 3, "compacted_batch_indexes": [1, 3]},
    ],
)
def test_batch_with_unknown_message_count_is_skipped(of_batch: dict[str, Any]) -> None:
    """No broker takes one; it makes no rows out of nothing, nor takes memory for them."""
    problems = ProblemCounts("t")
    log = in_log([encode_entry(*encrypted(shared(**of_batch), b"secret")), good(1)], [1, 1])
    assert ids(read(log, NULL, problems=problems)) == [(1, -1)]
    ((problem, (count, _)),) = problems.counts.items()
    assert (count, "are skipped, since their number is unknown" in problem) == (1, True)


# -- messages in chunks ------------------------------------------------------------------------------------------------


def chunks(kind: Callable[..., Any] | None = None, size: int = 300, uuid: str = "u") -> list[bytes]:
    metadata = shared()
    if kind is encrypted:
        metadata.encryption_keys.add(key="k1", value=b"x")
    message = Messages([bytes(size)], keys=["key"])
    return encode_chunks(message, metadata, uuid, 100 if size < 10_000 else size // 3)


@pytest.mark.parametrize(("kind", "size"), [(encrypted, 300), (None, LIMIT + 1)])
def test_a_message_in_chunks_that_can_not_be_decoded(kind: Callable[..., Any] | None, size: int) -> None:
    """SPK-1: it is one message, where its last chunk is, however the log is split"""
    parts = chunks(kind, size)
    log = in_log([*parts, good(9)], [1] * (len(parts) + 1))
    last = len(parts) - 1
    for first in range(len(parts)):
        with pytest.raises(UnreadableEntry, match=f"entry 7:{last} of .*(encrypted|maxDecompressedBytes)"):
            read(log, FAIL, first=first)
        problems = ProblemCounts("t")
        assert ids(read(log, SKIP, problems=problems, first=first)) == [(last + 1, -1)]
        assert [count for count, _ in problems.counts.values()] == [1]
        rows = sorted(read(log, NULL, first=first), key=lambda row: int(row["index"]))
        assert ids(rows) == [(last, -1), (last + 1, -1)]
        assert (rows[0]["value"], rows[0]["key"], rows[0]["index"]) == (None, b"key", last)
        assert ids(read(log[: last + 1], FAIL, OF_METADATA, first=first)) == [(last, -1)]


@pytest.mark.parametrize("first", [0, 2])
def test_a_message_in_chunks_that_needs_too_much_memory(first: int) -> None:
    """SPK-1: it is one that can't be decoded, and no loss; if no value is requested, it needs none"""
    little = 120_000
    log = in_log([*chunks(size=150_000), good(9)], [1] * 4)
    with pytest.raises(
        TooManyChunks, match=r"entry 7:2 of .*raise the option maxChunkBytes to read it; .*unreadable=null"
    ):
        read(log, DecodingOptions(max_chunk_bytes=little), first=first)
    assert ids(read(log, DecodingOptions(Unreadable.SKIP, max_chunk_bytes=little), first=first)) == [(3, -1)]
    rows = read(log, DecodingOptions(Unreadable.NULL, max_chunk_bytes=little), first=first)
    assert sorted(ids(rows)) == [(2, -1), (3, -1)]
    assert {row["value"] for row in rows} == {None, b"good 9"}
    without = ("message_id", "key", "index")
    assert sorted(ids(read(log, DecodingOptions(max_chunk_bytes=little), without, first=first))) == [
        (2, -1),
        (3, -1),
    ]


def test_encrypted_chunked_message_is_refused_regardless_of_size() -> None:
    """SPK-1: so it is refused for what it is, however large"""
    log = in_log(chunks(encrypted, 150_000), [1] * 3)
    with pytest.raises(UnreadableEntry, match=r"entry 7:2 of .* is encrypted with the keys"):
        read(log, DecodingOptions(max_chunk_bytes=20_000))


def test_a_malformed_chunk_is_no_message() -> None:
    """Under `null`, too, since no message ends with it."""
    problems = ProblemCounts("t")
    chunk = encode_entry(shared(uuid="u", num_chunks_from_msg=2, chunk_id=5, total_chunk_msg_size=2), b"x")
    log = in_log([chunk, good(1)], [1, 1])
    assert ids(read(log, NULL, problems=problems)) == [(1, -1)]
    assert [count for count, _ in problems.counts.values()] == [1]


def test_a_message_in_chunks_with_a_gap_is_none_even_if_there_was_no_memory_for_it() -> None:
    """SPK-1: it would be none with more memory either"""
    whole, gap = chunks(size=150_000), chunks(size=150_000, uuid="gap")
    log = in_log([gap[0], whole[0], gap[2], *whole[1:]], [1] * 5)
    for decoding in (
        DecodingOptions(max_chunk_bytes=60_000, unreadable=Unreadable.NULL),
        DecodingOptions(max_chunk_bytes=1 << 20),
    ):
        assert ids(read(log, decoding)) == [(4, -1)]


# -- the log, and memory ----------------------------------------------------------------------------------------------


def test_a_line_in_the_log_for_each_sort(caplog: pytest.LogCaptureFixture) -> None:
    """SPK-1: counted, and not a line for each message"""
    log = in_log([*[batch(encrypted)] * 40, *[single(corrupt)] * 5], [*[BATCH] * 40, *[1] * 5])
    for decoding, outcome in ((SKIP, "are skipped, since unreadable is skip"), (NULL, "since unreadable is null")):
        problems = ProblemCounts(TOPIC)
        read(log, decoding, problems=problems)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            problems.log_warnings()
            problems.log_warnings()
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 2
        assert all(outcome in line and line.startswith(TOPIC) for line in lines)
        assert ": 120 messages " in lines[0]
        assert "EncryptedEntry" in lines[0]
        assert "the first: entry 7:0 of" in lines[0]
        assert ": 5 messages " in lines[1]
        assert "the first: entry 7:40 of" in lines[1]


def test_event_times_out_of_range_are_null_and_counted() -> None:
    """SPK-1: Spark's timestamps end with the year 9999"""
    last = 253_402_300_799_999
    times = [1, last, last + 1, None, 2**64 - 1]
    problems = ProblemCounts("t")
    log = in_log([encode_batch(Messages([b""] * 5, event_times=times), shared())], [5])  # type: ignore[arg-type]
    rows = read(log, FAIL, problems=problems)
    assert [row["event_time"] is None for row in rows] == [False, False, True, True, True]
    assert rows[1]["event_time"].year == 9999
    ((problem, (count, first)),) = problems.counts.items()
    assert ("event_time" in problem, count, first) == (True, 2, "253,402,300,800,000 ms since 1970")


_COMPRESS: Final[dict[str, tuple[CompressionType, Callable[[bytes], bytes]]]] = {
    "LZ4": (entry_pb2.LZ4, lambda data: bytes(lz4.block.compress(data, store_size=False))),
    "ZLIB": (entry_pb2.ZLIB, zlib.compress),
    "ZSTD": (entry_pb2.ZSTD, zstandard.ZstdCompressor().compress),
    "ZSTD without its size": (entry_pb2.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress),
    "SNAPPY": (entry_pb2.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
}


@pytest.mark.parametrize("name", _COMPRESS)
def test_decompression_memory_is_bounded_by_its_limit(name: str) -> None:
    """SPK-1: whether the entry declares the right size of its payload, or a wrong one"""
    compression, compress = _COMPRESS[name]
    limit, bomb = 1 << 20, bytes(64 << 20)
    stored = compress(bomb)
    for size in (len(bomb), limit, 10):
        metadata = shared(compression=compression, uncompressed_size=size)
        log = in_log([encode_entry(metadata, stored)], [1])
        tracemalloc.start()
        try:
            (row,) = read(log, DecodingOptions(Unreadable.NULL, limit))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert row["value"] is None
        assert peak < 3 * limit + len(stored)
    metadata = shared(compression=compression, uncompressed_size=len(bomb))
    (row,) = read(in_log([encode_entry(metadata, stored)], [1]), DecodingOptions(max_decompressed_bytes=len(bomb)))
    assert len(row["value"]) == len(bomb)
