"""Schemas of producers and consumers are sent to brokers, and values are encoded before they are sent."""

from __future__ import annotations

from typing import Any

from magnetar.exceptions import InvalidMessage
from magnetar.schema._schema import Schema, SchemaType
from magnetar_protos import schema_pb2

__all__ = ["encode_value", "to_wire"]


def encode_value(
    schema: Schema[Any], value: Any, partition_key: str | bytes | None
) -> tuple[bytes | None, str | bytes | None]:
    """Return the payload of a value, and the message's key.

    Raises EncodeError, or TypeError for a value of another type.
    """
    if value is None:
        return None, partition_key
    if not schema.uses_key:
        return schema.encode(value), partition_key
    key, payload = schema.encode_with_key(value)
    if partition_key is None:
        return payload, key
    if key is not None or schema.sets_key:
        has = "the value has the key" if key is not None else "it would be the key of the value, which has none"
        raise InvalidMessage(f"partition_key = {partition_key!r}: leave it out, because {has}")
    return payload, partition_key


def to_wire(schema: Schema[Any] | None) -> schema_pb2.Schema | None:
    """Return the schema as a broker gets it. None: the broker gets none, because the schema accepts every payload."""
    if schema is None:
        return None
    info = schema.schema_info()
    return None if info.type in (SchemaType.BYTES, SchemaType.AUTO_CONSUME) else info.to_message()
