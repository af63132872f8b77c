"""Fields that are encoded without protobuf objects have the bytes that protobuf writes."""

from __future__ import annotations

from magnetar_protos.ledger_pb2 import ReadAnswer
from magnetar_wire import protobuf_fields
from magnetar_wire.protobuf_fields import encode_bytes_fields, encode_field_head

_NUMBER = ReadAnswer.RECORDS_FIELD_NUMBER


def test_fields_are_encoded_as_protobuf_does() -> None:
    values = [b"", b"a", bytes(127), bytes(128), bytes(16_384), b"a"]
    assert b"".join(encode_bytes_fields(_NUMBER, values)) == ReadAnswer(records=values).SerializeToString()
    assert encode_bytes_fields(_NUMBER, []) == []


def test_cached_sizes_are_bounded() -> None:
    heads = [encode_field_head(_NUMBER, size) for size in range(2 * protobuf_fields._MAX_CACHED_SIZES + 1)]
    assert len(set(heads)) == len(heads)
    assert len(protobuf_fields._get_heads(_NUMBER)) <= protobuf_fields._MAX_CACHED_SIZES
