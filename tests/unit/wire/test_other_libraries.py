"""Entries as libraries of other languages encode them, where these differ from the C++ library, whose entries
tests/vectors has: accepted by a broker, decoded by the codec, delivered by the SDK, converted to rows by Spark.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, NamedTuple

import pytest

from magnetar._message import DeliveryEpoch, Message, decode_delivered_entry
from magnetar_broker.topics.entry_check import accept_entry
from magnetar_protos.entry_pb2 import (
    CompressionType,
    EncryptionKeys,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)
from magnetar_spark.arrow import EntriesToArrow
from magnetar_wire.entry import add_broker_metadata, decode_entry, encode_entry
from magnetar_wire.errors import EncryptedEntry
from magnetar_wire.limits import MAX_MESSAGE_BYTES

LARGE: Final = b"large " * 100


class MessageOrigin(NamedTuple):
    topic: str = "persistent://public/default/t"
    partition: int = -1
    decode_value: Any = None


def metadata(**fields: Any) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=7, publish_time=1_700_000_000_000, **fields)


def record(payload: bytes, **fields: Any) -> bytes:
    """A message in a batch."""
    head = SingleMessageMetadata(payload_size=len(payload), **fields).SerializeToString()
    return len(head).to_bytes(4, "big") + head + payload


def properties(**pairs: str) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in pairs.items()]


class Case(NamedTuple):
    entry: bytes
    # For each message: its payload, key, ordering key, properties and event time, and its sequence id.
    messages: list[tuple[bytes | None, str | bytes, str, dict[str, str], int, int]]


BATCH: Final = record(b"a", partition_key="k", sequence_id=7) + record(b"b", event_time=5, sequence_id=8)
CASES: Final[dict[str, Case]] = {
    "go: a single message has its size, compressed or not": Case(
        encode_entry(metadata(uncompressed_size=3, compression=CompressionType.NONE, partition_key="k"), b"one"),
        [(b"one", "k", "", {}, 0, 7)],
    ),
    "go: a batch that is not compressed has its size": Case(
        encode_entry(
            metadata(num_messages_in_batch=2, uncompressed_size=len(BATCH), compression=CompressionType.NONE), BATCH
        ),
        [(b"a", "k", "", {}, 0, 7), (b"b", "", "", {}, 5, 8)],
    ),
    "java: a batch of one is a single message": Case(
        encode_entry(
            metadata(
                uncompressed_size=len(LARGE),
                compression=CompressionType.ZLIB,
                properties=properties(a="b"),
                highest_sequence_id=7,
                ordering_key=b"o",
                event_time=5,
            ),
            zlib.compress(LARGE),
        ),
        [(LARGE, "", "o", {"a": "b"}, 5, 7)],
    ),
    "java: no value, a key without value, a schema": Case(
        encode_entry(
            metadata(null_value=True, null_partition_key=True, schema_version=bytes(8), uncompressed_size=0), b""
        ),
        [(None, "", "", {}, 0, 7)],
    ),
    "java: a batch by key has the key of the batch, too": Case(
        encode_entry(
            metadata(
                num_messages_in_batch=2,
                partition_key="Aw==",
                partition_key_b64_encoded=True,
                ordering_key=b"o",
                uncompressed_size=0,
            ),
            record(b"a", partition_key="Aw==", partition_key_b64_encoded=True, ordering_key=b"o", sequence_id=7)
            + record(b"", null_value=True, partition_key="Aw==", partition_key_b64_encoded=True, sequence_id=9),
        ),
        [(b"a", b"\x03", "o", {}, 0, 7), (None, b"\x03", "", {}, 0, 9)],
    ),
    "of a replicator: where it is from": Case(
        encode_entry(metadata(replicated_from="far", replicate_to=["near"], num_messages_in_batch=2), BATCH),
        [(b"a", "k", "", {}, 0, 7), (b"b", "", "", {}, 5, 8)],
    ),
    "a batch's properties are nobody's": Case(
        encode_entry(metadata(num_messages_in_batch=2, properties=properties(of="batch"), event_time=9), BATCH),
        [(b"a", "k", "", {}, 0, 7), (b"b", "", "", {}, 5, 8)],
    ),
    "a batch of one, whose message has no number": Case(
        encode_entry(metadata(num_messages_in_batch=1), record(b"a", properties=properties(x="y"))),
        [(b"a", "", "", {"x": "y"}, 0, 7)],
    ),
    "one of a batch was compacted away": Case(
        encode_entry(metadata(num_messages_in_batch=2), record(b"", compacted_out=True) + record(b"b", sequence_id=8)),
        [(b"b", "", "", {}, 0, 8)],
    ),
    "a single message that declares itself one chunk of one": Case(
        encode_entry(metadata(uuid="u", num_chunks_from_msg=1, chunk_id=0, total_chunk_msg_size=3), b"one"),
        [(b"one", "", "", {}, 0, 7)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_messages_of_another_library_are_decoded(name: str) -> None:
    """MSG-4, WIRE-1"""
    entry, expected = CASES[name]
    accepted = accept_entry(entry, "p", MAX_MESSAGE_BYTES)
    assert accepted.chunk is None
    stored = add_broker_metadata(entry, 1_700_000_000_001, 100 + accepted.messages)
    era = DeliveryEpoch(MessageOrigin(), 1, 1)
    delivered = decode_delivered_entry(era, 3, 4, 0, decode_entry(stored))
    found = [Message(delivered, at) for at in delivered.remaining]
    assert [
        (
            None if one.has_null_value() else one.data(),
            one.key_bytes() if isinstance(sent[1], bytes) else one.partition_key(),
            one.ordering_key(),
            one.properties(),
            one.event_timestamp(),
            one.sequence_id(),
        )
        for one, sent in zip(found, expected, strict=True)
    ] == expected
    assert found[-1].index() == 100 + accepted.messages
    to_rows = EntriesToArrow(("key", "value", "properties", "sequence_id"), MessageOrigin().topic, -1)
    rows = [row for batch in (*to_rows.convert_entries(3, 4, [stored]), *to_rows.finish()) for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == [sent[0] for sent in expected]
    for row, (_, key, _, pairs, _, sequence_id) in zip(rows, expected, strict=True):
        assert row["key"] == ((key if isinstance(key, bytes) else key.encode()) or None)
        assert (dict(row["properties"] or ()), row["sequence_id"]) == (pairs, sequence_id)


def test_encrypted_messages_are_stored_and_not_decoded() -> None:
    """MSG-4: a reader with the keys can decode them; a batch of them is counted as its producer declares"""
    fields: dict[str, Any] = {
        "encryption_keys": [EncryptionKeys(key="k", value=b"v")],
        "encryption_algo": "RSA",
        "encryption_param": b"nonce",
        "uncompressed_size": 40,
    }
    entry = encode_entry(metadata(num_messages_in_batch=2, **fields), b"secret" * 10)
    assert accept_entry(entry, "p", MAX_MESSAGE_BYTES).messages == 2
    with pytest.raises(EncryptedEntry, match="k"):
        decode_delivered_entry(DeliveryEpoch(MessageOrigin(), 1, 1), 3, 4, 0, decode_entry(entry))
    part = encode_entry(metadata(uuid="u", num_chunks_from_msg=2, chunk_id=1, **fields), b"secret")
    assert accept_entry(part, "p", MAX_MESSAGE_BYTES).chunk == (hash("u"), 1, True)
