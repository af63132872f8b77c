"""Messages in chunks: round trips, entries of a stock client, and chunks that don't belong together."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar_protos import entry_pb2
from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_wire.batch import Messages, decode_messages, encode_batch, encode_message
from magnetar_wire.chunks import encode_chunks, join_chunks
from magnetar_wire.entry import Entry, decode_entry
from magnetar_wire.errors import MalformedEntry, PartOfMessage, TooLarge
from magnetar_wire.limits import MAX_MESSAGE_BYTES, MAX_UNCOMPRESSED_BYTES

SHARED = MessageMetadata(producer_name="p", sequence_id=7, publish_time=9)
CASES: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "pulsar_client.json").read_text())["cases"]
LONG = b"".join(b"%d," % number for number in range(600))
MESSAGE = Messages([LONG], keys=["key"], properties=[{"n": "v"}], event_times=[5], ordering_keys=[b"o"])


def chunks_of(message: Messages, size: int, compression: CompressionType = entry_pb2.NONE) -> list[Entry]:
    return [decode_entry(stored) for stored in encode_chunks(message, SHARED, "the-uuid", size, compression)]


@pytest.mark.parametrize("compression", CompressionType.values())
@pytest.mark.parametrize("size", [1, 100, 999, 5000])
def test_chunks_are_joined_to_the_message(compression: CompressionType, size: int) -> None:
    chunks = chunks_of(MESSAGE, size, compression)
    assert all(0 < len(chunk.payload) <= size for chunk in chunks)
    assert all(chunk.metadata.partition_key == "key" and chunk.metadata.properties for chunk in chunks)
    back = join_chunks(chunks)
    assert (back.payloads, back.keys, back.ordering_keys) == ([LONG], ["key"], [b"o"])
    assert (back.properties, back.event_times) == ([{"n": "v"}], [5])


@pytest.mark.parametrize("payload", [None, b"", b"x" * 100])
def test_a_message_that_fits_is_a_plain_entry(payload: bytes | None) -> None:
    assert encode_chunks(Messages([payload]), SHARED, "u", 100) == [encode_message(Messages([payload]), SHARED)]
    large = Messages([b"x" * 5000])
    [entry] = encode_chunks(large, SHARED, "u", 100, entry_pb2.ZSTD)
    assert entry == encode_message(large, SHARED, entry_pb2.ZSTD)
    assert join_chunks([decode_entry(entry)]).payloads == large.payloads


def test_the_metadata_of_a_chunk_is_not_used_for_the_next_message() -> None:
    chunk = chunks_of(MESSAGE, 1000)[1].metadata
    assert encode_message(Messages([b"x"]), chunk) == encode_message(Messages([b"x"]), SHARED)
    assert encode_batch(Messages([b"x"], [7]), SHARED) == encode_batch(
        Messages([b"x"], [7]), MessageMetadata(producer_name="p", sequence_id=7, publish_time=9, uuid="u", chunk_id=1)
    )


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("chunked")])
def test_chunks_equal_those_of_a_stock_client(name: str) -> None:
    """The chunks of a stock client are joined, and the message is split again at the same positions: the entries are
    equal.
    """
    sent = [base64.b64decode(each["entry"]) for each in CASES[name]["sent"]]
    chunks = [stored for stored in sent if decode_entry(stored).is_chunk] or sent
    entries = [decode_entry(stored) for stored in chunks]
    message = join_chunks(entries)
    large = max((base64.b64decode(each["payload"]) for each in CASES[name]["messages"]), key=len)
    assert message.payloads == [large]
    first = entries[0]
    cut_at = len(first.payload)
    compression = first.metadata.compression
    assert encode_chunks(message, first.metadata, first.metadata.uuid or "u", cut_at, compression) == chunks


def changed(field: str, value: Any) -> Callable[[list[Entry]], list[Entry]]:
    def change(chunks: list[Entry]) -> list[Entry]:
        setattr(chunks[1].metadata, field, value)
        return chunks

    return change


WRONG: dict[str, tuple[type[Exception], Callable[[list[Entry]], list[Entry]]]] = {
    "none": (PartOfMessage, lambda chunks: []),
    "the last is missing": (PartOfMessage, lambda chunks: chunks[:-1]),
    "the first alone": (PartOfMessage, lambda chunks: chunks[:1]),
    "the first is missing": (MalformedEntry, lambda chunks: chunks[1:]),
    "one is missing": (MalformedEntry, lambda chunks: [chunks[0], *chunks[2:]]),
    "one comes twice": (MalformedEntry, lambda chunks: [chunks[0], *chunks]),
    "the last comes twice": (MalformedEntry, lambda chunks: [*chunks, chunks[-1]]),
    "in another order": (MalformedEntry, lambda chunks: [chunks[1], chunks[0], *chunks[2:]]),
    "another message's": (MalformedEntry, changed("uuid", "another")),
    "another producer's": (MalformedEntry, changed("producer_name", "another")),
    "another number": (MalformedEntry, changed("sequence_id", 8)),
    "another count": (MalformedEntry, changed("num_chunks_from_msg", 4)),
    "another total": (MalformedEntry, changed("total_chunk_msg_size", 4)),
    "another compression": (MalformedEntry, changed("compression", entry_pb2.LZ4)),
    "a batch": (MalformedEntry, changed("num_messages_in_batch", 1)),
    "no chunk": (MalformedEntry, changed("num_chunks_from_msg", 1)),
    "a byte is missing": (
        MalformedEntry,
        lambda chunks: [*chunks[:-1], Entry(chunks[-1].metadata, chunks[-1].payload[:-1])],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_chunks_that_do_not_belong_together_are_refused(name: str) -> None:
    error, change = WRONG[name]
    with pytest.raises(error):
        join_chunks(change(chunks_of(MESSAGE, 1000)))


def test_a_message_in_chunks_above_the_limit_is_refused() -> None:
    with pytest.raises(TooLarge, match=str(MAX_UNCOMPRESSED_BYTES)):
        encode_chunks(Messages([bytes(MAX_UNCOMPRESSED_BYTES + 1)]), SHARED, "u")
    with pytest.raises(TooLarge, match="1000"):
        join_chunks(chunks_of(MESSAGE, 1000, entry_pb2.LZ4), max_uncompressed_bytes=1000)
    with pytest.raises(PartOfMessage):
        decode_messages(chunks_of(MESSAGE, 1000)[0])


@pytest.mark.parametrize(("uuid", "size"), [("", 100), ("u", 0), ("u", -1), ("u", MAX_MESSAGE_BYTES + 1)])
def test_chunks_without_a_uuid_or_a_size_are_refused(uuid: str, size: int) -> None:
    with pytest.raises(ValueError, match=r"uuid|bytes"):
        encode_chunks(MESSAGE, SHARED, uuid, size)
