"""Schemas: how values become payloads, and payloads values.

The names of Pulsar's Python client, and those of its Java client that have no counterpart there. `Int32` and `Float32`
are hints for the fields of dataclasses and models.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from magnetar.schema._avro_hints import Float32, Int32
from magnetar.schema._primitives import (
    BooleanSchema,
    BytesSchema,
    DateSchema,
    DoubleSchema,
    FloatSchema,
    InstantSchema,
    Int8Schema,
    Int16Schema,
    Int32Schema,
    Int64Schema,
    LocalDateSchema,
    LocalDateTimeSchema,
    LocalTimeSchema,
    StringSchema,
    TimeSchema,
    TimestampSchema,
)
from magnetar.schema._record import (
    Array,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Field,
    Float,
    Integer,
    Long,
    Map,
    Null,
    Record,
    String,
)
from magnetar.schema._schema import Schema, SchemaInfo, SchemaType

if TYPE_CHECKING:
    from magnetar.schema._auto import AutoConsumeSchema, AutoProduceBytesSchema
    from magnetar.schema._avro import AvroSchema
    from magnetar.schema._json import JsonSchema
    from magnetar.schema._key_value import KeyValue, KeyValueEncodingType, KeyValueSchema
    from magnetar.schema._protobuf import ProtobufNativeSchema, ProtobufSchema

__all__ = [
    "Array",
    "AutoConsumeSchema",
    "AutoProduceBytesSchema",
    "AvroSchema",
    "Boolean",
    "BooleanSchema",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "DateSchema",
    "Double",
    "DoubleSchema",
    "Field",
    "Float",
    "Float32",
    "FloatSchema",
    "InstantSchema",
    "Int8Schema",
    "Int16Schema",
    "Int32",
    "Int32Schema",
    "Int64Schema",
    "Integer",
    "JsonSchema",
    "KeyValue",
    "KeyValueEncodingType",
    "KeyValueSchema",
    "LocalDateSchema",
    "LocalDateTimeSchema",
    "LocalTimeSchema",
    "Long",
    "Map",
    "Null",
    "ProtobufNativeSchema",
    "ProtobufSchema",
    "Record",
    "Schema",
    "SchemaInfo",
    "SchemaType",
    "String",
    "StringSchema",
    "TimeSchema",
    "TimestampSchema",
]

# Imported when they are used: most applications need one of them, and fastavro takes a while to import.
_LAZY = {
    "AutoConsumeSchema": "_auto",
    "AutoProduceBytesSchema": "_auto",
    "AvroSchema": "_avro",
    "JsonSchema": "_json",
    "KeyValue": "_key_value",
    "KeyValueEncodingType": "_key_value",
    "KeyValueSchema": "_key_value",
    "ProtobufNativeSchema": "_protobuf",
    "ProtobufSchema": "_protobuf",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"magnetar.schema.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
