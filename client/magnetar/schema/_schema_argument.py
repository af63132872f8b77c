"""The `schema` argument of applications: an object, or the class of the values."""

from __future__ import annotations

import datetime
from typing import Any, Final

from magnetar.schema._primitives import BytesSchema, StringSchema
from magnetar.schema._schema import Schema

__all__ = ["to_schema"]

# Classes that are not records. Several schemas have values of a number or a time, so the application chooses.
_ALTERNATIVES: Final[tuple[tuple[type, str], ...]] = (
    (bool, "BooleanSchema()"),
    (int, "Int64Schema(), or one with fewer bits"),
    (float, "DoubleSchema() or FloatSchema()"),
    (datetime.datetime, "InstantSchema() with a time zone, LocalDateTimeSchema() without one"),
    (datetime.date, "LocalDateSchema()"),
    (datetime.time, "LocalTimeSchema()"),
    (dict, "AvroSchema(None, definition) or JsonSchema(None, definition)"),
)


def to_schema(value: Any) -> Schema[Any]:
    """Return the schema. Raises TypeError for a class that is no record, and ValueError for other objects: both say
    what to pass instead."""
    if isinstance(value, Schema):
        return value
    if value is bytes:
        return BytesSchema()
    if value is str:
        return StringSchema()
    if isinstance(value, type):
        alternative = _find_alternative(value)
        if alternative:
            raise TypeError(f"{value.__name__} is not the class of a record: use {alternative}")
        from magnetar.schema._avro import AvroSchema  # fastavro is imported only for this

        return AvroSchema(value)
    raise ValueError("use a schema, such as JsonSchema(Reading), or a dataclass or pydantic model")


def _find_alternative(value: type) -> str:
    if issubclass(value, Schema):
        return f"an object: {value.__name__}({'' if value.__module__ == StringSchema.__module__ else '…'})"
    if hasattr(value, "DESCRIPTOR"):
        return f"ProtobufNativeSchema({value.__name__})"
    if value.__name__ == "KeyValue" and value.__module__ == "magnetar.schema._key_value":
        return "KeyValueSchema(key_schema, value_schema)"
    return next((text for kind, text in _ALTERNATIVES if issubclass(value, kind)), "")
