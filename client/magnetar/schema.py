"""Schemas, as far as there are any: bytes are bytes. Those of Pulsar's client that mean more are there by name, so that
importing them goes well, and are refused when one is made."""

from __future__ import annotations

from typing import Any

from magnetar._not_yet import not_yet

__all__ = ["AvroSchema", "BytesSchema", "JsonSchema", "ProtobufNativeSchema", "Record", "Schema", "StringSchema"]


class Schema:
    """What a value is as bytes."""


class BytesSchema(Schema):
    """Bytes as they are: what every producer and consumer has."""

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BytesSchema)

    def __hash__(self) -> int:
        return hash(BytesSchema)

    def __repr__(self) -> str:
        return "BytesSchema()"


class Record:
    """A record's fields can be declared, and no schema made of it yet."""


AvroSchema: Any = not_yet("AvroSchema", Schema)
JsonSchema: Any = not_yet("JsonSchema", Schema)
ProtobufNativeSchema: Any = not_yet("ProtobufNativeSchema", Schema)
StringSchema: Any = not_yet("StringSchema", Schema)
