"""Fields that are encoded without protobuf objects have the bytes that protobuf writes."""

from __future__ import annotations

from magnetar_protos.ledger_pb2 import ReadAnswer
from magnetar_wire.protobuf_fields import encode_bytes_fields, encode_field_head

_NUMBER = ReadAnswer.RECORDS_FIELD_NUMBER


def test_fields_are_encoded_as_protobuf_does() -> None:
    values = [b"", b"a", bytes(127), bytes(128), bytes(16_384), b"a"]
    assert b"".join(encode_bytes_fields(_NUMBER, values)) == ReadAnswer(records=values).SerializeToString()
    assert encode_bytes_fields(_NUMBER, []) == []


def test_heads_of_many_sizes_are_right() -> None:
    """More sizes than are cached at a time."""
    for size in (*range(10_000), *range(10)):
        assert encode_field_head(_NUMBER, size) + bytes(size) == ReadAnswer(records=[bytes(size)]).SerializeToString()
