"""Schemas. Only BytesSchema is supported. The others of Pulsar's client can be imported, and raise
OperationNotSupported when they are created."""

from __future__ import annotations

from magnetar._unsupported import Unsupported
from magnetar.schema._schema import Schema, SchemaInfo, SchemaType

__all__ = [
    "AvroSchema",
    "BytesSchema",
    "JsonSchema",
    "ProtobufNativeSchema",
    "Record",
    "Schema",
    "SchemaInfo",
    "SchemaType",
    "StringSchema",
]


class BytesSchema(Schema[bytes]):
    """Bytes without conversion: what every producer and consumer uses."""

    def schema_info(self) -> SchemaInfo:
        return SchemaInfo(SchemaType.BYTES, "BYTES")

    def encode(self, obj: bytes) -> bytes:
        return obj

    def decode(self, data: bytes) -> bytes:
        return data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BytesSchema)

    def __hash__(self) -> int:
        return hash(BytesSchema)

    def __repr__(self) -> str:
        return "BytesSchema()"


class Record:
    """A base class for declarations of a record's fields. Schemas can't be made of them yet."""


class AvroSchema(Unsupported, Schema[bytes]):
    """Not supported yet."""

    instead = "encode values to bytes before you send them, and decode message.data()"


class JsonSchema(Unsupported, Schema[bytes]):
    """Not supported yet."""

    instead = "send json.dumps(value).encode(), and decode with json.loads(message.data())"


class ProtobufNativeSchema(Unsupported, Schema[bytes]):
    """Not supported yet."""

    instead = "send value.SerializeToString(), and decode with FromString(message.data())"


class StringSchema(Unsupported, Schema[bytes]):
    """Not supported yet."""

    instead = "send text.encode(), and decode with message.data().decode()"
