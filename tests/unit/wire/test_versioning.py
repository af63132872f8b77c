"""The rules of versioning (magnetar_protos/README.md) that code can violate."""

from __future__ import annotations

from google.protobuf.unknown_fields import UnknownFieldSet

from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_protos.frame_pb2 import Frame
from magnetar_wire.batch import Messages, decode_messages, encode_batch, encode_message
from magnetar_wire.entry import decode_entry

# Field 999, a varint: a field of a later version.
FROM_LATER = b"\xb8\x3e\x07"
SHARED = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)


def test_a_field_of_a_later_version_is_preserved_when_a_message_is_rewritten() -> None:
    shared = MessageMetadata.FromString(SHARED.SerializeToString() + FROM_LATER)
    for entry in (encode_batch(Messages([b"a", b"b"]), shared), encode_message(Messages([b"a"]), shared)):
        unknown = UnknownFieldSet(decode_entry(entry).metadata)
        assert len(unknown) == 1
        assert (unknown[0].field_number, unknown[0].data) == (999, 7)


def test_a_batch_with_a_field_of_a_later_version_is_decoded() -> None:
    record = b"\x18\x01\x40\x05" + FROM_LATER
    batch = b"".join(len(record).to_bytes(4, "big") + record + payload for payload in (b"a", b"b"))
    entry = decode_entry(encode_message(Messages([batch]), SHARED))
    entry.metadata.num_messages_in_batch = 2
    found = decode_messages(entry)
    assert (found.payloads, list(found.sequence_ids or ())) == ([b"a", b"b"], [5, 5])


def test_fields_keep_their_numbers() -> None:
    """Those of the public protocol, and those of the frame: stored data and other processes use them."""
    numbers = {field.name: field.number for field in MessageMetadata.DESCRIPTOR.fields}
    assert numbers["producer_name"] == 1
    assert numbers["num_messages_in_batch"] == 11
    assert numbers["highest_sequence_id"] == 24
    assert numbers["schema_id"] == 32
    assert {field.name: field.number for field in Frame.DESCRIPTOR.fields} == {"runs": 1, "entries": 2}
    assert dict(CompressionType.items()) == {"NONE": 0, "LZ4": 1, "ZLIB": 2, "ZSTD": 3, "SNAPPY": 4}
