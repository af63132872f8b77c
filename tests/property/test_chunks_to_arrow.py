"""Messages in chunks as Arrow rows, for all cuts of the log into slices, and with resent chunks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_protos import entry_pb2
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_spark.arrow import EntriesToArrow, ProblemCounts, chunked_messages
from magnetar_spark.arrow.chunked_messages import ChunkedMessages, NoChunkCapacity
from magnetar_spark.errors import TooManyChunks, UnreadableEntry
from magnetar_spark.options.decoding_options import DecodingOptions, Unreadable
from magnetar_wire.batch import Messages, encode_batch, encode_message
from magnetar_wire.chunks import encode_chunks
from magnetar_wire.entry import add_broker_metadata, decode_entry, encode_entry
from tests.examples import examples

TOPIC = "persistent://public/default/large"
COLUMNS = ("message_id", "value", "key", "properties", "index", "sequence_id", "producer_name", "publish_time")
LEDGER = 9


def shared(producer: str, number: int) -> MessageMetadata:
    return MessageMetadata(producer_name=producer, sequence_id=number, publish_time=1000 + number)


def chunks_of(producer: str, number: int, count: int, compression: Any = entry_pb2.NONE) -> list[bytes]:
    """A message in this many entries. Its content compresses to nothing like one entry."""
    payload = Random(f"{producer} {number}").randbytes(10 * count)
    message = Messages([payload], keys=[f"{producer}-{number}"], properties=[{"number": str(number)}])
    found = encode_chunks(message, shared(producer, number), f"{producer}-{number}", 10, compression)
    assert len(found) >= count
    return found


def in_log(entries: list[bytes]) -> list[bytes]:
    return [add_broker_metadata(entry, 5_000 + at, at) for at, entry in enumerate(entries)]


def read(log: list[bytes], start: int, stop: int, **options: Any) -> list[dict[str, Any]]:
    """The rows of a slice of the log."""

    def earlier() -> Iterator[tuple[int, int, bytes]]:
        for at in reversed(range(start)):
            yield LEDGER, at, log[at]

    converter = EntriesToArrow(COLUMNS, TOPIC, -1, earlier, **options)
    batches = [*converter.convert_entries(LEDGER, start, log[start:stop]), *converter.finish()]
    return [row for batch in batches for row in batch.to_pylist()]


def chunk_bytes(most: int, unreadable: Unreadable = Unreadable.FAIL) -> DecodingOptions:
    return DecodingOptions(unreadable, max_chunk_bytes=most)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that begin in front of a slice come last in it; Spark knows no order."""
    return sorted(rows, key=lambda row: row["message_id"]["entry_id"])


def log_indexes(rows: list[dict[str, Any]]) -> list[int]:
    return [row["message_id"]["entry_id"] for row in rows]


def whole_at(log: list[tuple[str, int, int]]) -> list[int]:
    """Where a message is whole: the rule as one reads it, of (message, chunk, chunks), in one pass over the log."""
    expected: dict[str, int] = {}
    found = []
    for at, (name, chunk, chunks) in enumerate(log):
        if chunk == 0:
            expected[name] = 0
        if name not in expected or chunk < expected[name]:
            continue
        if chunk > expected[name]:
            del expected[name]
            continue
        expected[name] = chunk + 1
        if chunk == chunks - 1:
            found.append(at)
            del expected[name]
    return found


@st.composite
def resent_logs(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """What up to three producers send in chunks: in order, some of it again, and sometimes one is missing."""
    streams = []
    for producer in range(draw(st.integers(1, 3))):
        stream: list[tuple[str, int, int]] = []
        for number in range(draw(st.integers(1, 2))):
            chunks = draw(st.integers(2, 4))
            at = 0
            while at < chunks:
                stream.append((f"{producer} {number}", at, chunks))
                at += 1
                if draw(st.integers(0, 5)) == 5:
                    at = draw(st.integers(0, min(at + 1, chunks)))
            if draw(st.booleans()) and draw(st.booleans()):
                stream += [(f"{producer} {number}", at, chunks) for at in range(draw(st.integers(0, chunks)), chunks)]
        streams.append(stream)
    log = []
    while any(streams):
        log.append(draw(st.sampled_from([stream for stream in streams if stream])).pop(0))
    return log


@given(resent_logs(), st.lists(st.integers(0, 40), max_size=4))
@examples(120, stable=True)
def test_where_a_log_is_cut_does_not_matter(log: list[tuple[str, int, int]], cuts: list[int]) -> None:
    """SPK-1, SPK-3: a message is in the slice of its last chunk, once, for all positions of the others."""
    made = {name: chunks_of(name, 0, chunks) for name, _, chunks in log}
    entries = in_log([made[name][chunk] for name, chunk, _ in log])
    whole = read(entries, 0, len(entries))
    assert log_indexes(in_order(whole)) == whole_at(log)
    edges = [0, *sorted(min(cut, len(entries)) for cut in cuts), len(entries)]
    parts = [read(entries, start, stop) for start, stop in pairwise(edges)]
    for rows, (start, stop) in zip(parts, pairwise(edges), strict=True):
        assert all(start <= at < stop for at in log_indexes(rows))
    assert in_order([row for rows in parts for row in rows]) == in_order(whole)


def test_handwritten_chunk_sequences_yield_the_expected_messages() -> None:
    """The cases that chunked_messages.py names, as written examples."""
    for text, whole in (
        ("a0 a1 a1 a2", [3]),
        ("a0 a1 a0 a1 a2", [4]),
        ("a0 a1 a2 a1 a2", [2]),
        ("a0 a1 a2 a0 a1 a2", [2, 5]),
        ("a0 a2", []),
        ("a0 a2 a1 a2", []),
        ("a0 b0 a1 b1 a2 b2", [4, 5]),
        ("a1 a2", []),
        ("a0 a1 a2 a1 a3", [4]),
        ("a0 a2 a1 a2 a3", []),
    ):
        chunks = 4 if "a3" in text else 3
        log = [(word[0], int(word[1]), chunks) for word in text.split()]
        assert whole_at(log) == whole, text
        made = {name: chunks_of(name, 0, chunks) for name in "ab"}
        entries = in_log([made[name][chunk] for name, chunk, _ in log])
        for cut in range(len(entries) + 1):
            rows = read(entries, 0, cut) + read(entries, cut, len(entries))
            assert log_indexes(in_order(rows)) == whole, (text, cut)


@pytest.mark.parametrize(
    "compression", [entry_pb2.NONE, entry_pb2.LZ4, entry_pb2.ZSTD, entry_pb2.ZLIB, entry_pb2.SNAPPY]
)
def test_chunked_row_has_id_and_index_of_the_last_chunk(compression: Any) -> None:
    """The id and the index of the last chunk, and the other fields of the first."""
    chunks = chunks_of("p", 7, 3, compression)
    other = encode_batch(Messages([b"x", b"y"]), shared("q", 1))
    entries = in_log([chunks[0], other, *chunks[1:]])
    rows = read(entries, 0, len(entries))
    last = len(entries) - 1
    (row,) = [row for row in rows if row["producer_name"] == "p"]
    assert row["message_id"] == {"ledger_id": LEDGER, "entry_id": last, "batch_index": -1}
    assert row["value"] == Random("p 7").randbytes(30)
    assert (row["key"], dict(row["properties"]), row["index"], row["sequence_id"]) == (b"p-7", {"number": "7"}, last, 7)
    assert log_indexes(rows) == [1, 1, last]


def test_contradictory_chunks_are_refused_with_their_position() -> None:
    first, last = chunks_of("p", 7, 2)
    metadata = MessageMetadata(
        producer_name="p", sequence_id=7, publish_time=1, uuid="p-7", num_chunks_from_msg=2, chunk_id=1
    )
    metadata.total_chunk_msg_size = 1_000_000
    forged = encode_forged(metadata)
    with pytest.raises(UnreadableEntry, match=r"entry 9:1 of .*large can't be read: chunk 1 declares"):
        read(in_log([first, forged]), 0, 2)
    metadata.chunk_id = 5
    with pytest.raises(UnreadableEntry, match=r"entry 9:0 .* chunk 5 of 2 of message 'p-7'"):
        read(in_log([encode_forged(metadata)]), 0, 1)
    rows = read(in_log([first, forged, first, last]), 0, 4, decoding=DecodingOptions(Unreadable.SKIP))
    assert log_indexes(rows) == [3]


def encode_forged(metadata: MessageMetadata, payload: bytes = b"0123456789") -> bytes:
    return encode_entry(metadata, payload)


def test_chunks_of_incomplete_messages_are_limited_by_bytes() -> None:
    """As much as incomplete messages have together, of all producers; complete ones count no more."""
    made = [chunks_of(f"p{each}", 0, 3) for each in range(5)]
    one = max(_stored_bytes(chunk) for chunks in made for chunk in chunks)
    one_by_one = in_log([chunk for chunks in made for chunk in chunks])
    assert len(read(one_by_one, 0, len(one_by_one), decoding=chunk_bytes(3 * one))) == 5
    mixed = in_log([chunk for at in range(3) for chunk in (chunks[at] for chunks in made)])
    assert len(read(mixed, 0, len(mixed), decoding=chunk_bytes(11 * one))) == 5
    little = 11 * one - 100
    with pytest.raises(TooManyChunks, match=rf"entry 9:10 of .* may use {little:,} bytes .*maxChunkBytes"):
        read(mixed, 0, len(mixed), decoding=chunk_bytes(little))
    assert log_indexes(read(mixed, 0, len(mixed), decoding=chunk_bytes(little, Unreadable.SKIP))) == [11, 12, 13, 14]
    with pytest.raises(TooManyChunks, match="entry 9:2 of "):  # backwards, too
        read(in_log(made[0]), 2, 3, decoding=chunk_bytes(2 * one - 100))
    with pytest.raises(TooManyChunks, match="entry 9:2 of "):  # by itself
        read(in_log(made[0]), 0, 3, decoding=chunk_bytes(one // 2))


def _stored_bytes(chunk: bytes) -> int:
    entry = decode_entry(chunk)
    return len(entry.payload) + entry.metadata.ByteSize() + chunked_messages.CHUNK_OVERHEAD_BYTES


def test_unfinished_chunked_messages_do_not_displace_others() -> None:
    """SPK-1: for any number of them, with payloads or without; an abandoned one is an error if it ends after all."""
    honest = chunks_of("p", 0, 3)
    begun = [chunks_of(f"q{each}", 0, 3) for each in range(50)]
    required: dict[str, Any] = {"producer_name": "r", "sequence_id": 0, "publish_time": 1}
    empty = [
        encode_forged(MessageMetadata(uuid=f"u{each}", chunk_id=0, num_chunks_from_msg=2, **required), b"")
        for each in range(200)
    ]
    max_bytes = 8 * max(_stored_bytes(chunk) for chunk in (*honest, begun[-1][0]))
    log = in_log([*(chunks[0] for chunks in begun), *empty, *honest[:2], *empty[:5], honest[2]])
    assert log_indexes(read(log, 0, len(log), decoding=chunk_bytes(max_bytes))) == [len(log) - 1]
    groups = ChunkedMessages(max_bytes, lambda entry, last, error: None, lambda entry, error: None)
    for at, chunk in enumerate(log[: len(log) - 1]):
        groups.add_chunk((9, at), decode_entry(chunk))
    assert groups.stored_bytes <= max_bytes
    # One more chunk completes those that are not dropped.
    last_of_empty = [
        encode_forged(MessageMetadata(uuid=f"u{each}", chunk_id=1, num_chunks_from_msg=2, **required), b"")
        for each in range(200)
    ]
    completed = 0
    for chunk in last_of_empty:
        with contextlib.suppress(NoChunkCapacity):
            completed += groups.add_chunk((9, len(log)), decode_entry(chunk)) is not None
    assert 0 < completed <= 8
    ended = in_log([*honest[:1], *empty, *honest[1:]])
    with pytest.raises(TooManyChunks, match=f"entry 9:{len(ended) - 1} of "):
        read(ended, 0, len(ended), decoding=chunk_bytes(max_bytes))


def test_earlier_entries_are_requested_only_for_missing_first_chunks() -> None:
    entries = in_log([*chunks_of("p", 0, 3), *chunks_of("p", 1, 3), encode_message(Messages([b"x"]), shared("p", 2))])

    def nothing() -> Iterator[tuple[int, int, bytes]]:
        raise AssertionError("it was read")

    for stop in range(len(entries) + 1):
        converter = EntriesToArrow(COLUMNS, TOPIC, -1, nothing)
        list(converter.convert_entries(LEDGER, 0, entries[:stop]))
        list(converter.finish())
    reads = []

    def earlier() -> Iterator[tuple[int, int, bytes]]:
        for at in (1, 0):
            reads.append(at)
            yield LEDGER, at, entries[at] if at else entries[0]
        raise AssertionError("the message is whole")

    converter = EntriesToArrow(COLUMNS, TOPIC, -1, earlier)
    rows = [
        row
        for batch in [*converter.convert_entries(LEDGER, 2, entries[2:]), *converter.finish()]
        for row in batch.to_pylist()
    ]
    assert log_indexes(in_order(rows)) == [2, 5, 6]
    assert reads == [1, 0]


def test_a_message_in_front_of_the_range_is_none_but_a_part_of_one_may_be() -> None:
    """The range begins behind the first entry given: what ends there is not in it, what goes on is."""
    chunks = in_log(chunks_of("p", 0, 2))
    converter = EntriesToArrow(COLUMNS, TOPIC, -1)
    rows = [*converter.convert_entries(LEDGER, 0, chunks, skip_messages=1), *converter.finish()]
    assert [log_indexes(batch.to_pylist()) for batch in rows] == [[1]]
    converter = EntriesToArrow(COLUMNS, TOPIC, -1)
    assert not [*converter.convert_entries(LEDGER, 1, chunks[1:], skip_messages=1), *converter.finish()]


def test_message_without_its_first_chunk_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    entries = in_log(chunks_of("p", 0, 2))
    converter = EntriesToArrow(COLUMNS, TOPIC, -1)
    assert not [*converter.convert_entries(LEDGER, 1, entries[1:]), *converter.finish()]
    assert "the message in chunks that ends with entry 9:1 is skipped" in caplog.text


@pytest.mark.parametrize("fails", [True, False])
def test_a_beginning_that_may_be_further_in_front_is_no_matter_of_a_warning(fails: bool) -> None:
    """SPK-1: there may be such a message, and which there are must not depend on where a log is cut. One whose end is
    found on the way was whole in front of the slice, however much there is of it."""
    options: dict[str, Any] = {"more_earlier": True, "fail_on_data_loss": fails}
    problems = ProblemCounts("large")
    entries = in_log([*chunks_of("p", 0, 2), *chunks_of("q", 0, 2)])
    again = [entries[3], entries[1]]
    converter = EntriesToArrow(COLUMNS, TOPIC, -1, lambda: [(LEDGER, 8, entries[3])], problems=problems, **options)
    assert not [*converter.convert_entries(LEDGER, 9, again)]
    if fails:
        with pytest.raises(UnreadableEntry, match=r"entry 9:10 of .* 8 ledgers and 1 GiB .*failOnDataLoss=false"):
            [*converter.finish()]
    else:
        assert not [*converter.finish()]
        assert [(count, "entry 9:10 of " in first) for count, first in problems.counts.values()] == [(1, True)]
