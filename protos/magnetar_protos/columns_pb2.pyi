from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Columns(_message.Message):
    __slots__ = ("properties", "partition_key", "payload_size", "compacted_out", "event_time", "partition_key_b64_encoded", "ordering_key", "sequence_id", "null_value", "null_partition_key")
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SIZE_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_OUT_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_B64_ENCODED_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_ID_FIELD_NUMBER: _ClassVar[int]
    NULL_VALUE_FIELD_NUMBER: _ClassVar[int]
    NULL_PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    properties: _containers.RepeatedScalarFieldContainer[bytes]
    partition_key: _containers.RepeatedScalarFieldContainer[str]
    payload_size: _containers.RepeatedScalarFieldContainer[int]
    compacted_out: _containers.RepeatedScalarFieldContainer[int]
    event_time: _containers.RepeatedScalarFieldContainer[int]
    partition_key_b64_encoded: _containers.RepeatedScalarFieldContainer[int]
    ordering_key: _containers.RepeatedScalarFieldContainer[bytes]
    sequence_id: _containers.RepeatedScalarFieldContainer[int]
    null_value: _containers.RepeatedScalarFieldContainer[int]
    null_partition_key: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, properties: _Optional[_Iterable[bytes]] = ..., partition_key: _Optional[_Iterable[str]] = ..., payload_size: _Optional[_Iterable[int]] = ..., compacted_out: _Optional[_Iterable[int]] = ..., event_time: _Optional[_Iterable[int]] = ..., partition_key_b64_encoded: _Optional[_Iterable[int]] = ..., ordering_key: _Optional[_Iterable[bytes]] = ..., sequence_id: _Optional[_Iterable[int]] = ..., null_value: _Optional[_Iterable[int]] = ..., null_partition_key: _Optional[_Iterable[int]] = ...) -> None: ...
